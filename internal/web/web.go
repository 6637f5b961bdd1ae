// Package web serves the page: a console for the browser that shows the pool as it
// is and lets those with a token act on it. It is files and headers only; the page
// calls the same API as every other client, with a token that its user gives it.
//
// The files are kept in memory, as they are and in gzip, whatever the cluster's size.
// What grows with the cluster is the page's own work, in the browser: one answer of
// the API with every GPU, then its event stream (docs/page.md).
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed page
var files embed.FS

// policy lets the page load its own files and call its own server, and nothing else:
// no inline script or style, no other origin, no frame around it, and no text that
// becomes markup (trusted types), which is what the token in the page relies on.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// asset is a file of the page.
type asset struct {
	contentType string
	etag        string
	plain, zip  []byte
}

// contentTypes by ending, so that what is sent does not depend on the machine.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "application/octet-stream"
}

// New serves the page at the paths that are its own, and hands all others to the API.
func New(api http.Handler) (http.Handler, error) {
	assets, err := load()
	if err != nil {
		return nil, fmt.Errorf("the page cannot be read: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := assets[file(r.URL.Path)]
		if !ok {
			api.ServeHTTP(w, r)
			return
		}
		a.serve(w, r)
	}), nil
}

// file is the file behind a path; "" for paths that are not the page's. Every view has
// a path of its own, so that a link leads to it, and all of them are one document.
func file(p string) string {
	if name, ok := strings.CutPrefix(p, "/page/"); ok {
		return name
	}
	view, rest, deep := strings.Cut(strings.TrimPrefix(p, "/"), "/")
	switch view {
	case "", "queue", "pools", "tenants", "savings", "events", "submit":
		if !deep {
			return "index.html"
		}
	case "tasks":
		if !deep || rest != "" && strings.Trim(rest, "0123456789") == "" {
			return "index.html"
		}
	}
	return ""
}

func load() (map[string]*asset, error) {
	out := map[string]*asset{}
	err := fs.WalkDir(files, "page", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		var zipped bytes.Buffer
		z, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err = z.Write(b); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		sum := sha256.Sum256(b)
		name = strings.TrimPrefix(name, "page/")
		out[name] = &asset{contentType: contentType(name), etag: `"` + hex.EncodeToString(sum[:8]) + `"`, plain: b, zip: zipped.Bytes()}
		return nil
	})
	return out, err
}

func (a *asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-cache") // kept, and asked about each time: a new version shows at once
	h.Set("Vary", "Accept-Encoding")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the page is only read: GET it", http.StatusMethodNotAllowed)
		return
	}
	h.Set("ETag", a.etag)
	if r.Header.Get("If-None-Match") == a.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", a.contentType)
	body := a.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = a.zip
	}
	h.Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // a client that left is no fault
	}
}
