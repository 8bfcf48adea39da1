package command

import (
	"context"
	"fmt"
	"io"
	"time"
)

// ByteCount formats a number of bytes with a unit.
func ByteCount(bytes float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	unit := 0
	for bytes >= 1000 && unit < len(units)-1 {
		bytes /= 1000
		unit++
	}
	if unit == 0 || bytes >= 100 {
		return fmt.Sprintf("%.0f %s", bytes, units[unit])
	}
	return fmt.Sprintf("%.1f %s", bytes, units[unit])
}

// Pause waits for a time. It returns an error if the context ends first.
func Pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Interruptible makes reads end with ctx, for input that may block. An interrupted read goes on in the
// background, and its data are lost.
func Interruptible(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	context.AfterFunc(ctx, func() { in.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(in, r)
		in.CloseWithError(err) // readers get io.EOF if err is nil
	}()
	return out
}
