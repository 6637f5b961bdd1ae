package assess

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Access says how a Prometheus is reached. The files are read once.
type Access struct {
	URL       string
	TokenFile string // holds a bearer token
	BasicFile string // holds user:password
	CAFile    string // holds certificates to trust besides the system's
}

// prometheus is a client of the HTTP API that decodes series one by one: the official
// one holds a whole answer, and its types, in memory.
type prometheus struct {
	base   *url.URL
	auth   func(*http.Request)
	client *http.Client
	tries  uint
}

// answerTime bounds one question; Prometheus itself gives up after two minutes.
const answerTime = 3 * time.Minute

func (a Access) connect() (*prometheus, error) {
	base, err := url.Parse(a.URL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("%q is not the address of a Prometheus: expected one such as http://prometheus.example:9090", a.URL)
	}
	base.RawQuery, base.Fragment = "", ""
	p := &prometheus{base: base, auth: func(*http.Request) {}, tries: 5}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if a.CAFile != "" {
		pem, err := os.ReadFile(a.CAFile)
		if err != nil {
			return nil, fmt.Errorf("the certificates of --ca-file cannot be read: %w", err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate: expected PEM", a.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	p.client = &http.Client{Transport: transport, Timeout: answerTime}
	switch {
	case a.TokenFile != "" && a.BasicFile != "":
		return nil, errors.New("give either --token-file or --basic-auth-file, not both")
	case a.TokenFile != "":
		token, err := secret(a.TokenFile)
		if err != nil {
			return nil, err
		}
		p.auth = func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	case a.BasicFile != "":
		pair, err := secret(a.BasicFile)
		if err != nil {
			return nil, err
		}
		user, password, ok := strings.Cut(pair, ":")
		if !ok {
			return nil, fmt.Errorf("%s is not as expected: one line, user:password", a.BasicFile)
		}
		p.auth = func(r *http.Request) { r.SetBasicAuth(user, password) }
	}
	return p, nil
}

func secret(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("the credentials cannot be read: %w", err)
	}
	s := strings.TrimSpace(string(b))
	if s == "" || strings.ContainsAny(s, "\r\n") {
		return "", fmt.Errorf("%s is not as expected: one line with the credentials", path)
	}
	return s, nil
}

// errTooMuch is an answer that would be larger than the server allows.
var errTooMuch = errors.New("more than the server answers at once")

// ask calls the API, again and later when that may help, and hands the body of the answer to read.
func (p *prometheus) ask(ctx context.Context, path string, q url.Values, read func(io.Reader) error) error {
	once := func() (struct{}, error) { return struct{}{}, p.once(ctx, path, q, read) }
	wait := &backoff.ExponentialBackOff{InitialInterval: 200 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 10 * time.Second}
	_, err := backoff.Retry(ctx, once, backoff.WithBackOff(wait), backoff.WithMaxTries(p.tries))
	if permanent, is := errors.AsType[*backoff.PermanentError](err); is {
		err = permanent.Unwrap()
	}
	return err
}

func (p *prometheus) once(ctx context.Context, path string, q url.Values, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.base.JoinPath(path).String(), strings.NewReader(q.Encode()))
	if strings.HasSuffix(path, "/values") { // which has no form
		req, err = http.NewRequestWithContext(ctx, http.MethodGet, p.base.JoinPath(path).String()+"?"+q.Encode(), http.NoBody)
	}
	if err != nil {
		return backoff.Permanent(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	p.auth(req)
	resp, err := p.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return backoff.Permanent(ctx.Err())
		}
		return fmt.Errorf("the Prometheus at %s does not answer: %w; is the address right, and can this machine reach it?", p.base.Redacted(), plain(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return p.refused(resp)
	}
	if err := read(resp.Body); err != nil {
		if ctx.Err() != nil {
			return backoff.Permanent(ctx.Err())
		}
		return fmt.Errorf("the answer of %s is not one of a Prometheus: %w", p.base.Redacted(), err)
	}
	return nil
}

// plain takes the method and the address off an error, which is said with it.
func plain(err error) error {
	if u, is := errors.AsType[*url.Error](err); is {
		return u.Err
	}
	return err
}

// refused says what an answer other than 200 means.
func (p *prometheus) refused(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
	var said struct{ Error string }
	_ = json.Unmarshal(b, &said)
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return backoff.Permanent(fmt.Errorf("the Prometheus at %s lets only those in who say who they are (%s): give --token-file or --basic-auth-file", p.base.Redacted(), resp.Status))
	case code == http.StatusNotFound:
		return backoff.Permanent(fmt.Errorf("there is no Prometheus at %s (%s): expected the address below which /api/v1/query_range is", p.base.Redacted(), resp.Status))
	case strings.Contains(said.Error, "too many samples"), strings.Contains(said.Error, "maximum resolution"), code == http.StatusRequestEntityTooLarge:
		return backoff.Permanent(fmt.Errorf("%w: %s", errTooMuch, said.Error))
	case code == http.StatusTooManyRequests, code >= 500:
		return fmt.Errorf("the Prometheus at %s answers %s: %s", p.base.Redacted(), resp.Status, firstLine(said.Error, b))
	default:
		return backoff.Permanent(fmt.Errorf("the Prometheus at %s refuses the question (%s): %s", p.base.Redacted(), resp.Status, firstLine(said.Error, b)))
	}
}

func firstLine(said string, body []byte) string {
	if said == "" {
		said = string(body)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	return strconv.Quote(line[:min(len(line), 300)])
}

// strings asks for a list of names.
func (p *prometheus) strings(ctx context.Context, path string, q url.Values) (out []string, err error) {
	err = p.ask(ctx, path, q, func(r io.Reader) error {
		var x struct{ Data []string }
		if err := json.NewDecoder(io.LimitReader(r, 1<<26)).Decode(&x); err != nil {
			return err
		}
		out = x.Data
		return nil
	})
	return out, err
}

// scalar asks for one number; false when there is none.
func (p *prometheus) scalar(ctx context.Context, query string, at time.Time) (v float64, found bool, err error) {
	q := url.Values{"query": {query}, "time": {seconds(at)}}
	err = p.ask(ctx, "api/v1/query", q, func(r io.Reader) error {
		var x struct {
			Data struct{ Result []struct{ Value [2]any } }
		}
		if err := json.NewDecoder(io.LimitReader(r, 1<<20)).Decode(&x); err != nil {
			return err
		}
		if len(x.Data.Result) > 0 {
			s, _ := x.Data.Result[0].Value[1].(string)
			v, err = strconv.ParseFloat(s, 64)
			found = err == nil
		}
		return nil
	})
	return v, found, err
}

// series is one of a matrix.
type series struct {
	Metric map[string]string `json:"metric"`
	Values values            `json:"values"`
}

// values are samples as they were sent.
type values []byte

// UnmarshalJSON keeps the text, for each.
func (v *values) UnmarshalJSON(b []byte) error {
	*v = append((*v)[:0], b...)
	return nil
}

// errValues is a list of samples that is not one.
var errValues = errors.New(`expected samples such as [[1764547200,"0.5"]]`)

// each calls f with every sample.
func (v values) each(f func(at, value float64)) error {
	rest := bytes.TrimSpace(v)
	if !bytes.HasPrefix(rest, []byte("[")) || !bytes.HasSuffix(rest, []byte("]")) {
		return errValues
	}
	rest = rest[1 : len(rest)-1]
	for len(rest) > 0 {
		sample, more, ok := bytes.Cut(rest, []byte("]"))
		if !ok {
			return errValues
		}
		at, value, ok := bytes.Cut(bytes.TrimLeft(sample, "[, \n\t"), []byte(","))
		if !ok {
			return errValues
		}
		t, err := strconv.ParseFloat(string(bytes.TrimSpace(at)), 64)
		if err != nil {
			return errValues
		}
		x, err := strconv.ParseFloat(string(bytes.Trim(value, "\" \n\t")), 64)
		if err != nil {
			return errValues
		}
		f(t, x)
		rest = bytes.TrimSpace(more)
	}
	return nil
}

// matrix asks for a range and hands on its series one by one.
func (p *prometheus) matrix(ctx context.Context, query string, from, to time.Time, step time.Duration, each func(series) error) error {
	q := url.Values{"query": {query}, "start": {seconds(from)}, "end": {seconds(to)}, "step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)}}
	return p.ask(ctx, "api/v1/query_range", q, func(r io.Reader) error { return readMatrix(r, each) })
}

func seconds(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

// readMatrix walks {"data":{"result":[…]}} without holding it.
func readMatrix(r io.Reader, each func(series) error) error {
	d := json.NewDecoder(r)
	seen := false
	err := object(d, func(key string) error {
		if key != "data" {
			return skip(d)
		}
		return object(d, func(key string) error {
			if key != "result" {
				return skip(d)
			}
			seen = true
			if err := delim(d, '['); err != nil {
				return err
			}
			for d.More() {
				var s series
				if err := d.Decode(&s); err != nil {
					return err
				}
				if err := each(s); err != nil {
					return err
				}
			}
			return delim(d, ']')
		})
	})
	if err == nil && !seen {
		err = errors.New("expected data with a result")
	}
	return err
}

func object(d *json.Decoder, field func(key string) error) error {
	if err := delim(d, '{'); err != nil {
		return err
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		key, _ := t.(string)
		if err := field(key); err != nil {
			return err
		}
	}
	return delim(d, '}')
}

func delim(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	if t != want {
		return fmt.Errorf("expected %s, got %v", want, t)
	}
	return nil
}

func skip(d *json.Decoder) error {
	var x json.RawMessage
	return d.Decode(&x)
}
