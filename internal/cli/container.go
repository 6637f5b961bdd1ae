package cli

import (
	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/work"
)

// containerFlags are the flags of submit and run about containers.
type containerFlags struct {
	image, network string
	volumes        []string
}

func (x *containerFlags) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&x.image, "image", "", "run it in a container of this image (default: as a process, or as the server decides)")
	f.StringArrayVar(&x.volumes, "volume", nil, "folder of the host that the container sees, SOURCE[:TARGET][:ro]; may be repeated")
	f.StringVar(&x.network, "network", "", "what the container reaches: none, bridge or host (default: as the server decides)")
	_ = c.RegisterFlagCompletionFunc("network", cobra.FixedCompletions(work.Networks(), cobra.ShellCompDirectiveNoFileComp))
}

// read puts the flags over what the task file says. Volumes join those of the file.
func (x *containerFlags) read(spec *apitype.TaskSpec) error {
	if x.image != "" {
		spec.Image = x.image
	}
	if x.network != "" {
		spec.Network = x.network
	}
	for _, text := range x.volumes {
		v, err := work.ParseVolume(text)
		if err != nil {
			return usagef("%s", err)
		}
		spec.Volumes = append(spec.Volumes, apitype.Volume(v))
	}
	return nil
}

// taskContainer shows the container of a task.
func taskContainer(line func(name, value string), t apitype.Task) {
	line("image", t.Image)
	for _, v := range t.Volumes {
		line("volume", work.Volume(v).String())
	}
	line("network", t.Network)
}
