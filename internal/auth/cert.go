package auth

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Certificates say what client certificates mean. The words that Groups are made of are
// cn=NAME, ou=UNIT and san=NAME (a DNS name, an e-mail address or a URI).
type Certificates struct {
	TenantFrom string // what names the tenant: cn, ou or san; "" = none does
	Groups     Groups
}

// CertificateFields are what can name a tenant.
func CertificateFields() []string { return []string{"cn", "ou", "san"} }

// Identify finds out whose a certificate is that was verified.
func (c Certificates) Identify(cert *x509.Certificate) (Identity, error) {
	fields := map[string][]string{"cn": {cert.Subject.CommonName}, "ou": cert.Subject.OrganizationalUnit, "san": slices.Concat(cert.DNSNames, cert.EmailAddresses, uris(cert))}
	var in []string
	for _, f := range CertificateFields() {
		for _, v := range fields[f] {
			if v != "" {
				in = append(in, f+"="+v)
			}
		}
	}
	tenant := ""
	if of := fields[c.TenantFrom]; len(of) > 0 {
		tenant = of[0]
	}
	if slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth) || slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageAny) {
		id := Identity{Kind: KindCertificate, ID: cert.Subject.String(), Expires: cert.NotAfter}
		var err error
		if id.Role, id.Tenant, err = c.Groups.role(in, tenant); err != nil {
			return Identity{}, fmt.Errorf("your certificate (%s) is valid and gives no right here: %w; show a token beside it", strings.Join(in, ", "), err)
		}
		return id, nil
	}
	return Identity{}, errors.New("your certificate is not made for clients: expected the extended key usage clientAuth")
}

func uris(cert *x509.Certificate) (out []string) {
	for _, u := range cert.URIs {
		out = append(out, u.String())
	}
	return out
}
