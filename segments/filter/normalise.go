package filter

// normalise pushes NOT down to the leaves, flattens nested ANDs and ORs and
// drops constants. What is true and unknown of a row stays the same.
func normalise(n Node, not bool) Node {
	switch n := n.(type) {
	case *Not:
		return normalise(n.Arg, !not)
	case *And:
		return combine(n.Args, !not, not)
	case *Or:
		return combine(n.Args, not, not)
	}
	if not {
		return negate(n)
	}
	return n
}

// negate returns the negation of a leaf.
func negate(n Node) Node {
	switch n := n.(type) {
	case *Compare:
		opposite := &Compare{Op: n.Op.opposite(), Col: n.Col, Value: n.Value}
		if n.Col.float() && n.Op > Ne {
			return &Or{[]Node{opposite, &IsNaN{Col: n.Col}}}
		}
		return opposite
	case *CompareColumns:
		return &CompareColumns{Op: n.Op, Left: n.Left, Right: n.Right, Not: !n.Not}
	case *In:
		return &In{Col: n.Col, Values: n.Values, Null: n.Null, Not: !n.Not}
	case *Like:
		return &Like{Col: n.Col, Pattern: n.Pattern, Not: !n.Not}
	case *IsNull:
		return &IsNull{Col: n.Col, Not: !n.Not}
	case *IsNaN:
		return &IsNaN{Col: n.Col, Not: !n.Not}
	case *Known:
		return &Known{Col: n.Col, Value: !n.Value}
	case *Const:
		return &Const{[...]Truth{Unknown, True, False}[n.Truth]}
	}
	return n
}

// combine normalises arguments (negated with not) into an AND or OR.
func combine(args []Node, and, not bool) Node {
	neutral, dominant := False, True // of OR
	if and {
		neutral, dominant = True, False
	}
	var out []Node
	for _, arg := range args {
		arg = normalise(arg, not)
		switch a := arg.(type) {
		case *Const:
			if a.Truth == dominant {
				return a
			}
			if a.Truth == neutral {
				continue
			}
		case *And:
			if and {
				out = append(out, a.Args...)
				continue
			}
		case *Or:
			if !and {
				out = append(out, a.Args...)
				continue
			}
		}
		out = append(out, arg)
	}
	switch {
	case len(out) == 0:
		return &Const{neutral}
	case len(out) == 1:
		return out[0]
	case and:
		return &And{out}
	}
	return &Or{out}
}
