package forecast

import (
	"strings"
	"unicode/utf8"
)

// longestText is how much of a name counts; what is longer is cut.
const longestText = 64

// pattern is what a name has in common with those of the same job: numbers, and words
// that look like identifiers, become '#'. It is "" when nothing else is left.
func pattern(name string) string {
	var space [longestText + 1]byte
	out := space[:0]
	letters := false
	for i := 0; i < len(name) && len(out) < longestText; {
		if n := uuid(name[i:]); n > 0 {
			out, i = append(out, '#'), i+n
			continue
		}
		n := word(name[i:])
		switch {
		case n == 0:
			out, i = append(out, name[i]), i+1
		case identifier(name[i : i+n]):
			out, i = append(out, '#'), i+n
		default:
			var more bool
			out, more = foldDigits(out, name[i:i+n])
			letters, i = letters || more, i+n
		}
	}
	if !letters {
		return ""
	}
	return clean(string(out))
}

// clean makes text that JSON gives back as it was, of bounded length.
func clean(s string) string {
	if len(s) > longestText {
		s = s[:longestText]
	}
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "?")
}

// foldDigits appends a word with each number as '#', and tells whether it has letters.
func foldDigits(out []byte, s string) (longer []byte, letters bool) {
	for i := 0; i < len(s) && len(out) < longestText; i++ {
		switch {
		case !digit(s[i]):
			out, letters = append(out, s[i]), true
		case i == 0 || !digit(s[i-1]):
			out = append(out, '#')
		}
	}
	return out, letters
}

// uuid is the length of the UUID at the start of s, 0 if there is none.
func uuid(s string) int {
	const length = 36
	if len(s) < length || word(s[length-1:]) > 1 {
		return 0
	}
	for i := range length {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (s[i] == '-') || !dash && !hex(s[i]) {
			return 0
		}
	}
	return length
}

// word is the length of the letters and digits at the start of s. Bytes beyond ASCII
// are letters.
func word(s string) int {
	n := 0
	for n < len(s) && (digit(s[n]) || letter(s[n])) {
		n++
	}
	return n
}

// identifier tells whether a word looks like one made by a machine: hexadecimal with
// digits, as long as a short git hash at least, or letters and digits in turns, as in
// the suffix of a pod.
func identifier(s string) bool {
	turns, digits, allHex := 0, 0, true
	for i := range len(s) {
		if digit(s[i]) {
			digits++
		}
		if i > 0 && digit(s[i]) != digit(s[i-1]) {
			turns++
		}
		allHex = allHex && hex(s[i])
	}
	return allHex && digits > 0 && len(s) >= 7 || turns >= 4
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' || c >= utf8.RuneSelf }

func hex(c byte) bool { return digit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }
