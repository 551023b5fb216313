package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The files that the API server reads, in the control plane's folder.
const (
	caFile         = "ca.crt"
	servingFile    = "apiserver.crt"
	servingKeyFile = "apiserver.key"
	accountKeyFile = "service-account.key"
	tokenFile      = "tokens.csv"
)

// validity is how long the certificates are good for.
const validity = 24 * time.Hour

// writeKeys makes a certificate authority, a serving certificate for the
// addresses, and the key that signs service account tokens, and writes them to
// a folder. It returns the authority's certificate.
func writeKeys(dir string, addresses []net.IP) ([]byte, error) {
	caKey, err := newKey()
	if err != nil {
		return nil, err
	}
	ca := template("nftproxy-e2e-ca")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return nil, fmt.Errorf("make the authority's certificate: %w", err)
	}
	servingKey, err := newKey()
	if err != nil {
		return nil, err
	}
	serving := template("kube-apiserver")
	serving.KeyUsage = x509.KeyUsageDigitalSignature
	serving.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serving.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	serving.IPAddresses = addresses
	servingDER, err := x509.CreateCertificate(rand.Reader, serving, ca, &servingKey.PublicKey, caKey)
	if err != nil {
		return nil, fmt.Errorf("make the serving certificate: %w", err)
	}
	accountKey, err := newKey()
	if err != nil {
		return nil, err
	}
	caPEM := encodePEM("CERTIFICATE", caDER)
	files := map[string][]byte{caFile: caPEM, servingFile: encodePEM("CERTIFICATE", servingDER)}
	for name, key := range map[string]*ecdsa.PrivateKey{servingKeyFile: servingKey, accountKeyFile: accountKey} {
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", name, err)
		}
		files[name] = encodePEM("EC PRIVATE KEY", der)
	}
	return caPEM, writeFiles(dir, files)
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

// template returns what all certificates have in common.
func template(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Minute),
		NotAfter:     now.Add(validity),
	}
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func writeFiles(dir string, files map[string][]byte) error {
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
