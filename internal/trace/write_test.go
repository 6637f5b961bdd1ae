package trace

import (
	"encoding/csv"
	"io"
	"strconv"
)

// writeCSV writes the tasks in our own format. CPU, main memory and GPU models
// have no column there.
func (t *Trace) writeCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	head := []string{"submit_s", "duration_s", "gpus", "fraction", "gpu_memory_mib", "tenant", "priority", "name", "utilisation", "class", "pool"}
	if err := c.Write(head); err != nil {
		return err
	}
	number := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	for _, x := range t.Tasks {
		row := []string{number(x.Submit.Seconds()), number(x.Duration.Seconds()), strconv.Itoa(x.GPUs), "", "", x.Tenant, x.Priority, x.Name, "", x.Class, x.Pool}
		if x.Milli > 0 {
			row[3] = number(float64(x.Milli) / 1000)
		}
		if x.GPUMemoryMiB > 0 {
			row[4] = strconv.FormatInt(x.GPUMemoryMiB, 10)
		}
		if x.Utilisation >= 0 {
			row[8] = number(x.Utilisation)
		}
		if err := c.Write(row); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}
