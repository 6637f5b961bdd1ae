package api

import (
	"compress/gzip"
	"net/http"
	"strings"
)

// compress sends JSON that was asked for by GET in gzip, to whoever takes that: lists
// shrink to a tenth. Streams are left alone, since each write of theirs must leave at
// once, and so are answers to other methods, which may hold a token.
func compress(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if r.Method != http.MethodGet || !takesGzip(r.Header.Get("Accept-Encoding")) {
			next.ServeHTTP(w, r)
			return
		}
		c := &compressor{ResponseWriter: w}
		next.ServeHTTP(c, r)
		if c.zip != nil { // not after a panic: half an answer must not look whole
			_ = c.zip.Close() // a client that left is no fault
		}
	})
}

func takesGzip(accepted string) bool {
	for part := range strings.SplitSeq(accepted, ",") {
		name, quality, _ := strings.Cut(part, ";")
		if strings.TrimSpace(name) == "gzip" {
			return strings.TrimRight(strings.TrimSpace(quality), "0.") != "q="
		}
	}
	return false
}

// compressor decides once the type of the answer is known.
type compressor struct {
	http.ResponseWriter
	begun bool
	zip   *gzip.Writer // nil: as it is
}

// WriteHeader is http.ResponseWriter's.
func (c *compressor) WriteHeader(status int) {
	if !c.begun {
		c.begun = true
		if status == http.StatusOK && c.Header().Get("Content-Type") == "application/json" {
			c.Header().Set("Content-Encoding", "gzip")
			c.Header().Del("Content-Length")
			c.zip, _ = gzip.NewWriterLevel(c.ResponseWriter, gzip.BestSpeed)
		}
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *compressor) Write(b []byte) (int, error) {
	if !c.begun {
		c.WriteHeader(http.StatusOK)
	}
	if c.zip != nil {
		return c.zip.Write(b)
	}
	return c.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (c *compressor) Unwrap() http.ResponseWriter { return c.ResponseWriter }
