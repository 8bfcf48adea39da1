package program

import (
	"context"
	"time"
)

// runSleep returns 0 when it is asked to end, or the given code after the duration.
func runSleep(ctx context.Context, p *process) (int, error) {
	set := p.flags()
	length := set.Duration("duration", 0, "how long to sleep; 0 is until asked to end")
	code := set.Int("code", 0, "the exit code after that")
	if err := p.parse(set); err != nil {
		return 0, err
	}
	var over <-chan time.Time
	if *length > 0 {
		over = time.After(*length)
	}
	select {
	case <-over:
		return *code, nil
	case <-ctx.Done():
		return 0, nil
	}
}
