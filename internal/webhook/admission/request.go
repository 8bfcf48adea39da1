package admission

// Request is what a review says about a request, without its objects. What the API server
// leaves out is empty.
type Request struct {
	UID, Operation, Namespace, Name, SubResource, User string

	DryRun bool
}

// read reads a review, and has the Judge read the objects. When it fails, the request has
// what was read before.
func (r *Request) read(review *Reader, judge Judge) error {
	err := review.Members(func(name string) error {
		if name != "request" {
			return review.Skip()
		}
		return review.Members(func(name string) error { return r.readMember(review, name, judge) })
	})
	if err != nil {
		return err
	}
	return review.end()
}

func (r *Request) readMember(review *Reader, name string, judge Judge) error {
	switch name {
	case "uid":
		return review.Text(&r.UID)
	case "operation":
		return review.Text(&r.Operation)
	case "namespace":
		return review.Text(&r.Namespace)
	case "name":
		return review.Text(&r.Name)
	case "subResource":
		return review.Text(&r.SubResource)
	case "dryRun":
		return review.Bool(&r.DryRun)
	case "userInfo":
		return review.Members(func(name string) error {
			if name == "username" {
				return review.Text(&r.User)
			}
			return review.Skip()
		})
	case "object":
		return judge.Read(review, false)
	case "oldObject":
		return judge.Read(review, true)
	}
	return review.Skip()
}
