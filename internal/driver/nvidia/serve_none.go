//go:build !cgo || !linux

package nvidia

import (
	"fmt"
	"os"
)

// Built says that this program can speak to NVML.
const Built = false

// HelperMain is the helper, which this program cannot be.
func HelperMain(string) int {
	fmt.Fprintln(os.Stderr, errNotBuilt)
	return 2
}
