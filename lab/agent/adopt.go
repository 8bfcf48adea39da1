package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The files of a pod's folder.
const (
	podFile          = "pod.json"
	recordFile       = "record.json"
	containersFolder = "containers"
	volumesFolder    = "volumes"
	terminationFile  = "termination-log"
)

// saved is what an earlier agent recorded of a pod.
type saved struct {
	pod    *corev1.Pod
	record *record
	slot   int
}

// readRecords reads the pods that an earlier agent recorded.
func (a *agent) readRecords() (map[uid]*saved, error) {
	folders, err := os.ReadDir(a.State.Pods())
	if errors.Is(err, fs.ErrNotExist) {
		return map[uid]*saved{}, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading the records of pods: %w", err)
	}
	all := map[uid]*saved{}
	for _, folder := range folders {
		s := &saved{pod: &corev1.Pod{}, record: &record{}}
		path := a.State.Pod(folder.Name())
		err := errors.Join(readJSON(filepath.Join(path, podFile), s.pod), readJSON(filepath.Join(path, recordFile), s.record))
		if err != nil {
			// The agent ended before it recorded anything of the pod.
			a.Log.Warn("pod without a record", "folder", path, "error", err)
			continue
		}
		if len(s.record.Addresses) > 0 && !s.record.Released {
			bytes := s.record.Addresses[0].AsSlice()
			s.slot = int(bytes[len(bytes)-1])
		}
		all[s.pod.UID] = s
	}
	return all, nil
}

func (w *worker) save() {
	if err := writeJSON(filepath.Join(w.folder, recordFile), w.record); err != nil {
		w.agent.Log.Error("record cannot be written", "pod", w.pod.Name, "error", err)
	}
}

func (w *worker) adopt() {
	for c := range allContainers(w.pod) {
		w.adoptContainer(c)
	}
}

func (w *worker) adoptContainer(spec *corev1.Container) {
	c := w.record.Containers[spec.Name]
	// The agent may have ended after it started an attempt and before it recorded it.
	number := 0
	if c != nil && c.Current != nil {
		number = c.Current.Number + 1
	}
	if a := w.findAttempt(spec.Name, number); a != nil {
		c = w.record.container(spec.Name)
		c.Previous, c.Current = c.Current, a
		c.Waiting, c.Stopping, c.Started, c.Passing = nil, nil, false, false
	}
	if !c.isRunning() {
		return
	}
	a := c.Current
	// A stop that was under way is started again with the time that is left.
	if c.Stopping != nil && !c.Stopping.Killed && c.Stopping.Deadline.After(w.agent.now()) {
		c.Stopping = nil
	}
	w.agent.Log.Info("container adopted", "pod", w.pod.Name, "container", spec.Name, "pid", a.Process.ID)
	w.follow(spec.Name, a, nil)
	w.startProbes(spec, c)
}

// findAttempt looks for an attempt that is not in the record.
func (w *worker) findAttempt(name string, number int) *attempt {
	folder := w.attemptFolder(name, number)
	var spec containerSpec
	if err := readJSON(filepath.Join(folder, specFile), &spec); err != nil {
		return nil
	}
	var b startReport
	for range 20 {
		err := readJSON(filepath.Join(folder, beginFile), &b)
		if err == nil && b.Error == "" {
			return &attempt{
				Number: number, ID: attemptID(w.pod.UID, name, number), Image: spec.Image,
				Process: b.Process, Keeper: b.Keeper, Input: b.Input, Begun: b.At,
			}
		} else if err == nil {
			return nil
		}
		// Its keeper may be about to start it.
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}
