package config

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// fill sets every field to the default in its tag.
func fill(c *Config) error {
	return walk(reflect.ValueOf(c).Elem(), "", func(path string, f reflect.StructField, v reflect.Value) error {
		text, ok := f.Tag.Lookup("default")
		if !ok {
			return nil
		}
		if err := set(v, text); err != nil {
			return fmt.Errorf("default of %s: %w", path, err)
		}
		return nil
	})
}

// walk visits the settings of a struct in order; sections are visited before what
// is in them. Lists are visited as one.
func walk(v reflect.Value, prefix string, visit func(path string, f reflect.StructField, v reflect.Value) error) error {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		path := prefix + key(f)
		if err := visit(path, f, v.Field(i)); err != nil {
			return err
		}
		if f.Type.Kind() == reflect.Struct {
			if err := walk(v.Field(i), path+".", visit); err != nil {
				return err
			}
		}
	}
	return nil
}

func key(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

func set(v reflect.Value, text string) error {
	if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return err
		}
		v.SetBool(b)
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		v.SetInt(int64(n))
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return err
		}
		v.SetFloat(f)
	default:
		return fmt.Errorf("type %s has no default in text", v.Type())
	}
	return nil
}

// Example is the text of config.example.yaml: every setting, its default and why.
func Example() string {
	var b strings.Builder
	b.WriteString(`# Every setting of gpupool with its default and why. An empty file means all of this.
# Check a file with: gpupool config check FILE. Generated from internal/config (go test ./internal/config -update).
`)
	c := Default()
	_ = walk(reflect.ValueOf(&c).Elem(), "", func(path string, f reflect.StructField, v reflect.Value) error {
		indent := strings.Repeat("  ", strings.Count(path, "."))
		doc := f.Tag.Get("doc")
		if since := f.Tag.Get("since"); since != "" {
			doc += " (No effect yet: waits for " + since + ".)"
		}
		switch f.Type.Kind() {
		case reflect.Struct:
			gap := ""
			if indent == "" { // between sections
				gap = "\n"
			}
			fmt.Fprintf(&b, "%s%s# %s\n%s%s:\n", gap, indent, doc, indent, key(f))
		case reflect.Map:
			fmt.Fprintf(&b, "%s# %s\n%s# %s: %s\n", indent, doc, indent, key(f), f.Tag.Get("example"))
		case reflect.Slice:
			if f.Type.Elem().Kind() == reflect.String {
				fmt.Fprintf(&b, "%s# %s\n%s# %s: %s\n", indent, doc, indent, key(f), f.Tag.Get("example"))
				break
			}
			fmt.Fprintf(&b, "\n# %s\n%s", doc, examplePool)
		default:
			fmt.Fprintf(&b, "%s# %s\n%s%s: %s\n", indent, doc, indent, key(f), scalar(v))
		}
		return nil
	})
	return b.String()
}

const examplePool = `# pools:
#   - name: ` + DefaultPool + `
#     hosts: ["*"]   # name patterns
#     mode: dynamic  # or static: whole GPUs, exclusive; or shadow: static, and it says what dynamic would do
#     # What follows is taken from the section queue if left out.
#     ttl: 1h
#     priority_weight: 0.7
#     capacity: 1000
#     back_pressure_at: 80%
#     ask_for_more_at: 10
#     # And this is of the pool alone.
#     borrow_from: [other]  # pools whose idle GPUs its tasks may use while more wait than ask_for_more_at
#     lend_gpus: 0          # of its own that tasks of other pools hold at most; 0 = all that idle
#     reserve_gpus: 1       # that training leaves free for inference and interactive work
`

func scalar(v reflect.Value) string {
	if s, ok := reflect.TypeAssert[fmt.Stringer](v); ok {
		return s.String()
	}
	if v.Kind() == reflect.String {
		return strconv.Quote(v.String())
	}
	return fmt.Sprint(v.Interface())
}

// Schema is the JSON Schema (2020-12) of the file, for editors.
func Schema() ([]byte, error) {
	s := object(reflect.TypeFor[Config]())
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "gpupool configuration"
	return json.MarshalIndent(s, "", "  ")
}

func object(t reflect.Type) map[string]any {
	props := map[string]any{}
	for f := range t.Fields() {
		p := property(f.Type)
		p["description"] = f.Tag.Get("doc")
		if d, ok := f.Tag.Lookup("default"); ok {
			p["default"] = d
			if n, err := strconv.ParseFloat(d, 64); err == nil && p["type"] != "string" {
				p["default"] = n
			}
			if p["type"] == "boolean" {
				p["default"] = d == "true"
			}
		}
		if e := f.Tag.Get("enum"); e != "" {
			p["enum"] = strings.Split(e, ",")
		}
		props[key(f)] = p
	}
	return map[string]any{"type": "object", "properties": props, "additionalProperties": false}
}

func property(t reflect.Type) map[string]any {
	switch t {
	case reflect.TypeFor[Duration]():
		return map[string]any{"type": "string", "pattern": `^([0-9.]+(ns|us|µs|ms|s|m|h))+$`}
	case reflect.TypeFor[After]():
		return map[string]any{"oneOf": []any{property(reflect.TypeFor[Duration]()), object(t)}}
	case reflect.TypeFor[Percent]():
		return map[string]any{"type": "string", "pattern": `^[0-9.]+%$`}
	case reflect.TypeFor[Size]():
		return map[string]any{"type": "string", "pattern": `^[0-9.]+ ?[KMGT]?i?B$`}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return property(t.Elem())
	case reflect.Struct:
		return object(t)
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": property(t.Elem())}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": property(t.Elem())}
	case reflect.Int:
		return map[string]any{"type": "integer"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	}
	return map[string]any{"type": "string"}
}

// Idle lists the settings that differ from their default and have no effect in
// this version, so that nobody relies on them unawares.
func (c Config) Idle() []string {
	d := Default()
	defaults := map[string]string{}
	collect := func(to func(path, value string)) func(string, reflect.StructField, reflect.Value) error {
		return func(path string, f reflect.StructField, v reflect.Value) error {
			if f.Tag.Get("since") != "" {
				to(path, scalar(v))
			}
			return nil
		}
	}
	var out []string
	_ = walk(reflect.ValueOf(&d).Elem(), "", collect(func(p, v string) { defaults[p] = v }))
	_ = walk(reflect.ValueOf(&c).Elem(), "", collect(func(p, v string) {
		if defaults[p] != v {
			out = append(out, p)
		}
	}))
	return out
}
