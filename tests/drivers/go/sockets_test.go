package drivers

import (
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const established = "01"

// remoteAddresses lists the remote ends of this process's TCP connections as the kernel sees them,
// whatever the driver says about itself.
func remoteAddresses(t *testing.T) map[string]bool {
	t.Helper()
	own := map[string]bool{}
	descriptors, _ := filepath.Glob("/proc/self/fd/*")
	for _, descriptor := range descriptors {
		if target, err := os.Readlink(descriptor); err == nil && strings.HasPrefix(target, "socket:[") {
			own[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] = true
		}
	}
	remote := map[string]bool{}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(text), "\n")[1:] {
			columns := strings.Fields(line)
			if len(columns) > 9 && columns[3] == established && own[columns[9]] {
				remote[endpoint(t, columns[2])] = true
			}
		}
	}
	return remote
}

// endpoint parses hexadecimal address:port; the address is made of 32-bit words in little-endian order.
func endpoint(t *testing.T, field string) string {
	t.Helper()
	address, port, _ := strings.Cut(field, ":")
	bytes, err := hex.DecodeString(address)
	if err != nil {
		t.Fatal(err)
	}
	for word := 0; word < len(bytes); word += 4 {
		bytes[word], bytes[word+1], bytes[word+2], bytes[word+3] = bytes[word+3], bytes[word+2], bytes[word+1], bytes[word]
	}
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort(net.IP(bytes).String(), strconv.FormatUint(number, 10))
}
