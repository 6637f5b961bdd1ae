package work

import "strings"

// SplitSecret reads what a task names: the variable that gets the value, and the secret
// that it is the value of. NAME alone is both.
func SplitSecret(s string) (variable, ref string) {
	variable, ref, named := strings.Cut(s, "=")
	if !named {
		ref = variable
	}
	return variable, ref
}

// maxSecretName is the longest name of a secret.
const maxSecretName = 128

// SecretName reports whether a name can be that of a secret: it is that of a file, too.
func SecretName(s string) bool {
	if s == "" || len(s) > maxSecretName || s[0] == '.' || s[0] == '-' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
}

// validSecret checks what a task names.
func validSecret(s string) error {
	variable, ref := SplitSecret(s)
	if variable == "" || strings.ContainsFunc(variable, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
	}) || variable[0] >= '0' && variable[0] <= '9' {
		return Errorf(CodeInvalid, "secret %q is not understood: expected VARIABLE=NAME, or NAME where it is the variable's too", s)
	}
	if !SecretName(ref) {
		return Errorf(CodeInvalid, "secret %q names none: expected letters, digits and . _ -, beginning with a letter, a digit or _", s)
	}
	return nil
}
