package kernel

import "vicinity.dev/vicinity/internal/proxy/netlink"

// The kinds of comments in the user data of rules and of sets, which the kernel keeps for
// whoever made them and nft shows.
const (
	ruleComment = 0 // NFTNL_UDATA_RULE_COMMENT
	setComment  = 7 // NFTNL_UDATA_SET_COMMENT
)

// comment is user data with a comment: its kind, its length, and the text with a zero at
// its end.
func comment(kind byte, text string) string {
	return string([]byte{kind, byte(len(text) + 1)}) + text + "\x00"
}

// commented is the comment in user data, empty if there is none.
func commented(kind byte, data []byte) string {
	for len(data) >= 2 {
		length := int(data[1])
		if 2+length > len(data) {
			return ""
		}
		if data[0] == kind {
			return netlink.Text(data[2 : 2+length])
		}
		data = data[2+length:]
	}
	return ""
}
