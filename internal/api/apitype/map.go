package apitype

// Map is every GPU and what stands on it in one answer, small enough for 10,000 of
// them: names stand once in a list, and elsewhere as their number in it, from 0.
// Follow the event stream from Seq on to keep it as it is now.
type Map struct {
	Seq     uint64     `json:"seq" doc:"Number of a fact: the map shows what happened up to it, and may show some of what came after"`
	Pools   []string   `json:"pools" nullable:"false"`
	Tenants []string   `json:"tenants" nullable:"false" doc:"Those who hold something and whom the token may see"`
	Models  []MapModel `json:"models" nullable:"false"`
	Hosts   []MapHost  `json:"hosts" nullable:"false" doc:"By number"`
	GPUs    []MapGPU   `json:"gpus" nullable:"false" doc:"By number"`
}

// MapModel is a GPU model.
type MapModel struct {
	Name      string       `json:"name" example:"H100-80GB"`
	Units     int          `json:"units" doc:"Memory units of the board; 0 without MIG"`
	MemoryMiB int64        `json:"memory_mib"`
	Profiles  []MapProfile `json:"profiles" nullable:"false"`
}

// MapProfile is a MIG profile of a model.
type MapProfile struct {
	Name  string `json:"name" example:"1g.10gb"`
	Units int    `json:"units" doc:"Memory units that it takes"`
}

// MapHost is a host.
type MapHost struct {
	Name string `json:"name"`
	Pool int    `json:"pool"`
	Up   bool   `json:"up"`
}

// MapGPU is a GPU.
type MapGPU struct {
	Host   int       `json:"host"`
	Model  int       `json:"model"`
	Health string    `json:"health,omitempty" doc:"suspect, cordoned, draining, drained or broken; absent when it is ok"`
	Slices [][]int64 `json:"slices" nullable:"false" doc:"For each: task (0 = another tenant's), epoch, member, tenant (-1 = another), mode (0 whole, 1 mig, 2 shared), first memory unit, memory units, thousandths of the GPU's compute, use of that in percent (-1 = not known)"`
}

// MapSlice is a slice in a Map before it is written as a row of numbers.
type MapSlice struct {
	Task         uint64
	Epoch        uint32
	Member       int
	Tenant       int
	Mode         string
	Start, Units int
	Milli, Use   int
}

// Numbers is the row.
func (s MapSlice) Numbers() []int64 {
	mode := map[string]int64{"mig": 1, "shared": 2}[s.Mode]
	return []int64{int64(s.Task), int64(s.Epoch), int64(s.Member), int64(s.Tenant), mode, int64(s.Start), int64(s.Units), int64(s.Milli), int64(s.Use)}
}
