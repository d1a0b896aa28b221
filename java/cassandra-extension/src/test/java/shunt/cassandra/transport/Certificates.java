package shunt.cassandra.transport;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.SecureRandom;
import java.security.cert.X509Certificate;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509TrustManager;

/** Certificates that are made by the tests and signed by themselves. */
final class Certificates
{
    static final String PASSWORD = "changeit";

    private Certificates()
    {
    }

    /** A new key and its certificate, in a file of that name. */
    static Path keystore(Path directory, String name) throws IOException
    {
        Path keystore = directory.resolve(name + ".p12");
        Process keytool = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "keytool").toString(),
            "-genkeypair", "-alias", name, "-keyalg", "EC", "-dname", "CN=" + name, "-validity", "2", "-storetype", "PKCS12",
            "-keystore", keystore.toString(), "-storepass", PASSWORD).redirectErrorStream(true).start();
        String said = new String(keytool.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        if (keytool.onExit().join().exitValue() != 0)
            throw new IllegalStateException("keytool: " + said);
        return keystore;
    }

    /** The certificate of that keystore, for those who are to trust it. */
    static Path truststore(Path keystore, String name) throws IOException, GeneralSecurityException
    {
        KeyStore trusted = KeyStore.getInstance("PKCS12");
        trusted.load(null, null);
        trusted.setCertificateEntry(name, load(keystore).getCertificate(name));
        Path file = keystore.resolveSibling("trusts-" + name + ".p12");
        try (OutputStream out = Files.newOutputStream(file))
        {
            trusted.store(out, PASSWORD.toCharArray());
        }
        return file;
    }

    private static KeyStore load(Path keystore) throws IOException, GeneralSecurityException
    {
        return KeyStore.getInstance(keystore.toFile(), PASSWORD.toCharArray());
    }

    /** A client's TLS without a certificate. */
    static SSLContext anonymous() throws GeneralSecurityException
    {
        return client(null);
    }

    /** A client's TLS with this certificate. */
    static SSLContext with(Path keystore) throws IOException, GeneralSecurityException
    {
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(load(keystore), PASSWORD.toCharArray());
        return client(keys.getKeyManagers());
    }

    private static SSLContext client(KeyManager[] keys) throws GeneralSecurityException
    {
        SSLContext tls = SSLContext.getInstance("TLS");
        tls.init(keys, new TrustManager[] {new TrustsAll()}, new SecureRandom());
        return tls;
    }

    /** Which node it is, is not in question here. */
    private static final class TrustsAll implements X509TrustManager
    {
        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type)
        {
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type)
        {
        }

        @Override
        public X509Certificate[] getAcceptedIssuers()
        {
            return new X509Certificate[0];
        }
    }
}
