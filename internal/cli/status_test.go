package cli

import (
	"testing"
)

func TestStatusGolden(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
	}{
		{"all.txt", nil},
		{"wide.txt", []string{"-A", "-o", "wide"}},
		{"data.txt", []string{"-n", "data"}},
		{"ops.json", []string{"-n", "ops", "-o", "json"}},
		{"ops.yaml", []string{"-n", "ops", "-o", "yaml"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			newFakeCluster(t).printsGolden(t, "status/"+test.name, append([]string{"status"}, test.args...)...)
		})
	}
}

func TestStatusFails(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"an argument", []string{"web"}, 2, `unexpected argument "web": "vicinity status" takes none (see "vicinity status --help")`},
		{"an unknown format", []string{"-o", "xml"}, 2, `invalid argument "xml" for "-o, --output" flag: it must be table, wide, json or yaml (see "vicinity status --help")`},
		{
			"a list that is not allowed", nil, 1,
			`reading Services is not allowed: User "jane" cannot list resource "services" in API group "" at the cluster scope; see docs/reference/permissions.md; use -n for one namespace`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newFakeCluster(t)
			c.refuse("services", forbidden("", "services"))
			code, stdout, stderr := c.run(t.Context(), append([]string{"status"}, test.args...)...)
			if code != test.code || stderr != "vicinity: "+test.want+"\n" || stdout != "" {
				t.Errorf("exit code %d, standard error\n%swant %d\nvicinity: %s", code, stderr, test.code, test.want)
			}
		})
	}
}
