package shape

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a time.Duration that files write with its unit, as in 2ms.
type Duration struct {
	time.Duration
}

// MarshalJSON writes the duration as a string.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("duration %s: write a number with a unit, such as 2ms or 1.5s", data)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("duration %q: write a number with a unit, such as 2ms or 1.5s", text)
	}
	d.Duration = parsed
	return nil
}
