package trace

import "time"

// addPhilly reads Microsoft's Philly; the virtual cluster is the tenant.
func (t *Trace) addPhilly(tab *table) error {
	if err := tab.need(phillyColumns); err != nil {
		return err
	}
	t.Source, t.Licence = "Microsoft Philly (msr-fiddle/philly-traces)", "CC BY 4.0"
	return tab.each(func() error {
		s := tab.text("timestamp")
		at, err := time.Parse(time.DateTime, s)
		if err != nil || at.Year() < 2000 || at.Year() > 2100 {
			return tab.bad("timestamp: expected a time such as 2017-10-09 07:01:55, got %q", s)
		}
		if t.Start.IsZero() {
			t.Start = at
		}
		x := Task{Tenant: tab.text("cluster"), Priority: "normal", Submit: at.Sub(t.Start), Utilisation: -1}
		return t.addWhole(tab, x, "", "num_gpus")
	})
}
