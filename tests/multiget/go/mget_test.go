// go-redis, unmodified, on a sidecar at SHUNT_MULTIGET (host:port): what MGET brings is what GETs bring one by one.
package multiget

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const keys = 300

func connect(t *testing.T, protocol int) *redis.Client {
	address := os.Getenv("SHUNT_MULTIGET")
	if address == "" {
		t.Fatal("SHUNT_MULTIGET has to name a sidecar")
	}
	// Longer than a command may take there.
	timeout := 180 * time.Second
	client := redis.NewClient(&redis.Options{Addr: address, Protocol: protocol, DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout})
	t.Cleanup(func() { client.Close() })
	return client
}

func each(t *testing.T, test func(*testing.T, context.Context, *redis.Client)) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) { test(t, context.Background(), connect(t, protocol)) })
	}
}

func key(number int) string { return fmt.Sprintf("go:%d", number) }

// Some values do not fit a datagram.
func value(number int) string {
	return strings.Repeat(fmt.Sprintf("%d.", number), []int{1, 20, 100, 800}[number%4])
}

func fill(t *testing.T, ctx context.Context, client *redis.Client) {
	pipeline := client.Pipeline()
	for number := range keys {
		pipeline.Set(ctx, key(number), value(number), 0)
	}
	if _, err := pipeline.Exec(ctx); err != nil {
		t.Fatal(err)
	}
}

// Wanted is what GETs say, one by one.
func wanted(ctx context.Context, client *redis.Client, names []string) ([]any, error) {
	var found []any
	for _, name := range names {
		switch text, err := client.Get(ctx, name).Result(); {
		case errors.Is(err, redis.Nil):
			found = append(found, nil)
		case err != nil:
			return nil, err
		default:
			found = append(found, text)
		}
	}
	return found, nil
}

func TestMultigetsAreWhatGetsBring(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, client *redis.Client) {
		fill(t, ctx, client)
		random := rand.New(rand.NewSource(1))
		for _, count := range []int{1, 2, 9, 16, 17, 100, 500} {
			var names []string
			for range count {
				// Some are not there, and some there twice.
				names = append(names, key(random.Intn(keys+50)))
			}
			names = append(names, names[:count/3]...)
			expected, err := wanted(ctx, client, names)
			if err != nil {
				t.Fatal(err)
			}
			found, err := client.MGet(ctx, names...).Result()
			if err != nil || fmt.Sprint(found) != fmt.Sprint(expected) {
				t.Fatalf("%d keys: %v", count, err)
			}
		}
	})
}

func TestPipelinesKeepTheirOrder(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, client *redis.Client) {
		pipeline := client.Pipeline()
		var found []*redis.SliceCmd
		for number := range 100 {
			pipeline.Set(ctx, "go:turn", number, 0)
			found = append(found, pipeline.MGet(ctx, "go:turn", "go:none", "go:turn"))
		}
		if _, err := pipeline.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		for number, result := range found {
			if expected := fmt.Sprintf("[%d <nil> %d]", number, number); fmt.Sprint(result.Val()) != expected {
				t.Fatalf("%v instead of %s", result.Val(), expected)
			}
		}
	})
}

func TestCommandsOverSeveralServersAreSplit(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, client *redis.Client) {
		var names []string
		var pairs []any
		for number := range 50 {
			names = append(names, fmt.Sprintf("go:split:%d", number))
			pairs = append(pairs, names[number], number)
		}
		if err := client.MSet(ctx, pairs...).Err(); err != nil {
			t.Fatal(err)
		}
		counted := func(what string, command *redis.IntCmd, expected int64) {
			if found, err := command.Result(); err != nil || found != expected {
				t.Fatalf("%s: %d instead of %d, %v", what, found, expected, err)
			}
		}
		counted("EXISTS", client.Exists(ctx, append(names, names...)...), 100)
		counted("TOUCH", client.Touch(ctx, append(names, "go:none")...), 50)
		counted("UNLINK", client.Unlink(ctx, names[:20]...), 20)
		counted("DEL", client.Del(ctx, append(names, names...)...), 30)
		counted("EXISTS", client.Exists(ctx, names...), 0)
		if err := client.MSetNX(ctx, pairs...).Err(); err == nil || !strings.HasPrefix(err.Error(), "CROSSSLOT") {
			t.Fatalf("%v", err)
		}
	})
}

func TestErrorsAreTheServers(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, client *redis.Client) {
		client.Del(ctx, "go:list")
		client.RPush(ctx, "go:list", "x")
		if err := client.Get(ctx, "go:list").Err(); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
			t.Fatalf("%v", err)
		}
		if found, err := client.MGet(ctx, "go:list").Result(); err != nil || found[0] != nil {
			t.Fatalf("%v, %v", found, err)
		}
		if err := client.FlushAll(ctx).Err(); err == nil || !strings.Contains(err.Error(), "'flushall' is not passed on") {
			t.Fatalf("%v", err)
		}
	})
}

func TestManyAtATime(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, client *redis.Client) {
		fill(t, ctx, client)
		var work sync.WaitGroup
		for seed := range 16 {
			work.Go(func() {
				random := rand.New(rand.NewSource(int64(seed)))
				for range 30 {
					var names []string
					var expected []any
					for range 1 + random.Intn(30) {
						number := random.Intn(keys)
						names, expected = append(names, key(number)), append(expected, value(number))
					}
					if found, err := client.MGet(ctx, names...).Result(); err != nil || fmt.Sprint(found) != fmt.Sprint(expected) {
						t.Errorf("%v: %v", names, err)
					}
				}
			})
		}
		work.Wait()
	})
}
