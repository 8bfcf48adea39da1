package admission

import "vicinity.dev/vicinity/internal/webhook/jsonscan"

// Request is what a review says about a request, without its objects. What the API server
// leaves out is empty.
type Request struct {
	UID, Operation, Namespace, Name, SubResource, User string
}

// read reads a review, and has the Judge read the objects. When it fails, the request has
// what was read before.
func (r *Request) read(s *jsonscan.Scanner, judge Judge) error {
	seen := false
	err := s.Members(func(name []byte) error {
		if string(name) != "request" {
			_, err := s.Skip()
			return err
		}
		if seen {
			return jsonscan.ErrTwice
		}
		seen = true
		return s.Members(func(name []byte) error { return r.readMember(s, string(name), judge) })
	})
	if err != nil {
		return err
	}
	return s.End()
}

func (r *Request) readMember(s *jsonscan.Scanner, name string, judge Judge) error {
	switch name {
	case "uid":
		return s.Text(&r.UID)
	case "operation":
		return s.Text(&r.Operation)
	case "namespace":
		return s.Text(&r.Namespace)
	case "name":
		return s.Text(&r.Name)
	case "subResource":
		return s.Text(&r.SubResource)
	case "userInfo":
		return s.Members(func(name []byte) error {
			if string(name) == "username" {
				return s.Text(&r.User)
			}
			_, err := s.Skip()
			return err
		})
	case "object":
		return judge.Read(s, false)
	case "oldObject":
		return judge.Read(s, true)
	}
	_, err := s.Skip()
	return err
}
