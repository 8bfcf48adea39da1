package inspect

import (
	"os"
	"testing"
)

func TestDocumentsExist(t *testing.T) {
	for _, document := range []string{PermissionsDocument, runbookController, runbookHints, runbookRefused, runbookProxy} {
		if _, err := os.Stat("../../" + document); err != nil {
			t.Error(err)
		}
	}
}
