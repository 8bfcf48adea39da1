package agent

import "strings"

// expand replaces $(NAME) by its value. An unknown name stays as written, and $$ is a
// literal dollar sign.
func expand(text string, lookup func(string) (string, bool)) string {
	if !strings.Contains(text, "$") {
		return text
	}
	var b strings.Builder
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 || i+1 == len(text) {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(text[:i])
		text = text[i:]
		switch {
		case text[1] == '$':
			b.WriteByte('$')
			text = text[2:]
		case text[1] == '(' && strings.IndexByte(text, ')') > 0:
			end := strings.IndexByte(text, ')')
			if value, ok := lookup(text[2:end]); ok {
				b.WriteString(value)
			} else {
				b.WriteString(text[:end+1])
			}
			text = text[end+1:]
		default:
			b.WriteByte('$')
			text = text[1:]
		}
	}
}
