package process

import (
	"os"
	"strconv"
	"strings"

	"github.com/gpupool/gpupool/internal/runner"
)

// passed are the variables of the server that programs get too. The rest stays
// with the server: it may hold secrets.
var passed = []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH"}

// markVariable names the member's folder to every process of it, so that what a
// killed shim leaves behind is found again.
const markVariable = "GPUPOOL_DIR"

// environment is what a process sees. Later entries win: the task's own and its secrets
// over the server's, and gpupool's over both, so that no task can claim devices by itself.
func environment(folder string, s runner.Spec, user, secrets []string) []string {
	var env []string
	for _, name := range passed {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	env = append(append(append(env, user...), s.Env...), secrets...)
	return append(append(env, told(s)...), markVariable+"="+folder)
}

// told is what gpupool tells a program.
func told(s runner.Spec) []string {
	devices := strings.Join(s.Devices, ",")
	nvidia := devices
	if nvidia == "" {
		nvidia = "void" // the container toolkit's word for none
	}
	return []string{
		"CUDA_VISIBLE_DEVICES=" + devices,
		"NVIDIA_VISIBLE_DEVICES=" + nvidia,
		"GPUPOOL_TASK=" + strconv.FormatUint(s.ID.Task, 10),
		"GPUPOOL_EPOCH=" + strconv.FormatUint(uint64(s.ID.Epoch), 10),
		"GPUPOOL_MEMBER=" + strconv.Itoa(s.ID.Member),
		"GPUPOOL_MEMBERS=" + strconv.Itoa(max(s.Members, 1)),
		"GPUPOOL_TENANT=" + s.Tenant,
		"GPUPOOL_POOL=" + s.Pool,
		"GPUPOOL_HOST=" + s.Host,
		"GPUPOOL_NAME=" + s.Name,
		"GPUPOOL_SLICES=" + s.Slices,
	}
}
