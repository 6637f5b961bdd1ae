package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// lifeText puts the facts of a task's usual life, and those about hardware, pools and
// tenants, into words. Of another kind it says nothing.
func lifeText(ev apitype.Event, raw []byte) (string, error) {
	switch ev.Kind {
	case "task.submitted":
		return in(raw, submittedFact.words)
	case "task.placed":
		return in(raw, placedFact.words)
	case "part.carved":
		return in(raw, func(f ownerFact) string { return f.Owner.of() + "has its slices" })
	case "member.started":
		return in(raw, func(f ownerFact) string { return f.Owner.of() + "runs" })
	case "member.exited":
		return in(raw, func(f ownerFact) string { return f.Owner.of() + f.Exit.Reason().Msg })
	case "task.state":
		return in(raw, stateFact.words)
	case "lease.closing":
		return in(raw, stateFact.closing)
	case "part.freeretry":
		return in(raw, func(f retryFact) string {
			return f.Owner.of() + "its slices could not be freed: " + f.Why + "; tried again at " + moment(time.Unix(0, f.Until), ev.At)
		})
	case "part.freed":
		return in(raw, func(f ownerFact) string { return f.Owner.of() + "its slices are free" })
	case "lease.recalled":
		return in(raw, func(f reasonFact) string { return f.Reason.Message })
	case "lease.renewed":
		return in(raw, func(f retryFact) string { return "renewed until " + moment(time.Unix(0, f.Expires), ev.At) })
	case "task.forgotten":
		return in(raw, func(f struct {
			Tasks []uint64 `json:"tasks"`
		}) string {
			return fmt.Sprintf("%d ended tasks are no longer kept", len(f.Tasks))
		})
	}
	return siteText(ev, raw)
}

// siteText is lifeText of hardware, pools and tenants.
func siteText(ev apitype.Event, raw []byte) (string, error) {
	switch ev.Kind {
	case "gap":
		return in(raw, func(f apitype.Reason) string { return f.Message })
	case "pool.set":
		return in(raw, func(f siteFact) string { return fmt.Sprintf("pool %s is set, mode %s", f.Pool.Name, f.Pool.Mode) })
	case "tenant.set":
		return in(raw, func(f siteFact) string { return "tenant " + f.Tenant.Name + " is set" })
	case "tenant.removed":
		return in(raw, func(f apitype.Pool) string { return "tenant " + f.Name + " is removed" })
	case "token.set":
		return in(raw, func(f tokenFact) string { return tokenWords(f.Token) + " is set" })
	case "token.removed":
		return in(raw, func(f struct {
			ID string `json:"id"`
		}) string {
			return "token " + f.ID + " is revoked"
		})
	case "model.learned":
		return in(raw, func(f struct {
			Model struct {
				Key string `json:"key"`
			} `json:"model"`
		}) string {
			return strings.TrimSpace("a GPU model is known now: " + f.Model.Key)
		})
	case "host.joined":
		return in(raw, func(f struct {
			Pool string `json:"pool"`
			Host struct {
				Name string     `json:"name"`
				GPUs []struct{} `json:"gpus"`
			} `json:"host"`
		}) string {
			return fmt.Sprintf("host %s with %d GPUs joined pool %s", f.Host.Name, len(f.Host.GPUs), f.Pool)
		})
	case "host.changed":
		return in(raw, hostFact.words)
	case "host.moved":
		return in(raw, func(f hostFact) string { return fmt.Sprintf("host %d belongs to pool %s", f.Host, f.Pool) })
	case "gpu.changed":
		return in(raw, func(f gpuFact) string { return f.words(ev.At) })
	case "host.shares":
		return in(raw, hostFact.shares)
	case "gpu.faulted":
		return in(raw, func(f faultFact) string { return f.words(ev.At) })
	}
	return "", nil
}

// member is which one of a task.
type member struct {
	Member int `json:"member"`
}

// of begins a sentence about it; a task of one member is not told from it.
func (m member) of() string {
	if m.Member == 0 {
		return ""
	}
	return fmt.Sprintf("member %d: ", m.Member)
}

type ownerFact struct {
	Owner member    `json:"owner"`
	Exit  work.Exit `json:"exit"`
}

type submittedFact struct {
	Array uint64    `json:"array"`
	Index int       `json:"index"`
	Spec  work.Spec `json:"spec"`
}

func (f submittedFact) words() string {
	s := f.Spec
	words := "submitted"
	if s.Name != "" {
		words += " as " + s.Name
	}
	words += fmt.Sprintf(": %s in pool %s, %s priority", s.Request, s.Pool, s.Priority)
	if s.MaxMilli > 1000*s.Request.GPUs+s.Request.Milli {
		words += fmt.Sprintf(", up to %s", gpuCount(float64(s.MaxMilli)/1000))
	}
	if f.Array != 0 {
		words += fmt.Sprintf(", number %d of array %d", f.Index, f.Array)
	}
	if len(s.Command) == 0 {
		return words + ", a lease"
	}
	return words + ": " + strings.Join(s.Command, " ")
}

type placedFact struct {
	Runs  uint32      `json:"runs"`
	Parts []work.Part `json:"parts"`
}

func (f placedFact) words() string {
	var all []work.Slice
	for _, p := range f.Parts {
		all = append(all, p.Slices...)
	}
	if f.Runs != 0 {
		return "goes on, on " + sliceNames(all)
	}
	return "gets " + sliceNames(all)
}

type stateFact struct {
	State  string         `json:"state"`
	Then   string         `json:"then"`
	Reason apitype.Reason `json:"reason"`
}

func (f stateFact) words() string   { return because("is "+f.State, f.Reason) }
func (f stateFact) closing() string { return because("is being ended, then it is "+f.Then, f.Reason) }

func because(what string, why apitype.Reason) string {
	if why.Message == "" {
		return what
	}
	return what + ": " + why.Message
}

type retryFact struct {
	Owner   member `json:"owner"`
	Until   int64  `json:"until"`
	Expires int64  `json:"expires"`
	Why     string `json:"why"`
}

type siteFact struct {
	Pool   work.Pool   `json:"pool"`
	Tenant work.Tenant `json:"tenant"`
}

type hostFact struct {
	Host int    `json:"host"`
	Pool string `json:"pool"`

	Sharing string         `json:"sharing"`
	Up      bool           `json:"up"`
	Reason  apitype.Reason `json:"reason"`
}

func (f hostFact) words() string {
	if f.Up {
		return because(fmt.Sprintf("host %d can be used", f.Host), f.Reason)
	}
	return because(fmt.Sprintf("host %d cannot be used", f.Host), f.Reason)
}

func (f hostFact) shares() string {
	if f.Sharing == gpu.SharingMPS {
		return fmt.Sprintf("GPUs of host %d are shared by MPS from now on", f.Host)
	}
	return fmt.Sprintf("GPUs of host %d are shared by time slices from now on", f.Host)
}

type gpuFact struct {
	GPU      int    `json:"gpu"`
	Health   string `json:"health"`
	Until    int64  `json:"until"`
	Why      string `json:"why"`
	Operator *said  `json:"operator"`
	Driver   *said  `json:"driver"`
}

// said is what an operator or a driver wants done with a GPU.
type said struct {
	Do   string `json:"do"`
	Why  string `json:"why"`
	By   string `json:"by"`
	Mend string `json:"mend"`
}

type faultFact struct {
	GPU    int             `json:"gpu"`
	At     int64           `json:"at"`
	Code   string          `json:"code"`
	What   string          `json:"what"`
	Reason *apitype.Reason `json:"reason"`
}

func (f faultFact) words(now time.Time) string {
	words := fmt.Sprintf("GPU %d reported %s at %s", f.GPU, f.Code, moment(time.Unix(0, f.At), now))
	if f.What != "" {
		words += ": " + f.What
	}
	if f.Reason != nil {
		words += "; the task that had it had ended: " + f.Reason.Message
	}
	return words
}

func (f gpuFact) words(now time.Time) string {
	words := fmt.Sprintf("GPU %d is %s", f.GPU, f.Health)
	if f.Until > 0 && f.Health == string(gpu.HealthSuspect) {
		words += " until " + moment(time.Unix(0, f.Until), now)
	}
	if f.Why != "" {
		words += ": " + f.Why
	}
	if s := f.Operator; s != nil {
		words += fmt.Sprintf(" (%s, by %s)", s.Do, s.By)
	}
	if s := f.Driver; s != nil {
		words += fmt.Sprintf(" (%s, by driver %s)", s.Do, s.By)
	}
	if f.Driver != nil && f.Driver.Mend != "" {
		words += "; to mend it: " + f.Driver.Mend
	}
	return words
}
