package filter

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"vitess.io/vitess/go/vt/sqlparser"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// grammar is set up once; it holds no state.
var grammar = sync.OnceValues(func() (*sqlparser.Parser, error) { return sqlparser.New(sqlparser.Options{}) })

// Parse parses a predicate over the columns of a schema. What is wrong with it
// is Invalid and names the column or the position, and what is allowed.
func Parse(where string, s *segments.Schema) (*Expr, error) {
	t, err := tokenize(where)
	if err != nil {
		return nil, err
	}
	tree, err := parseSQL(t)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: t, schema: s, expr: &Expr{text: where}}
	root, err := p.predicate(tree, 0)
	if err != nil {
		return nil, p.locate(tree, err)
	}
	p.expr.root = normalise(root, false)
	return p.expr, nil
}

const selectPrefix = "select 1 from t where "

// parseSQL runs the grammar. A fault in it is the caller's text, never a panic.
func parseSQL(t *tokens) (expr sqlparser.Expr, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errs.New(errs.Invalid, "where: the predicate cannot be parsed; %s", allowed)
		}
	}()
	parser, err := grammar()
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "set up SQL parser", err)
	}
	// The space tells an end that comes too early from a last token that is wrong.
	stmt, err := parser.ParseStrictDDL(selectPrefix + t.out.String() + " ")
	if err != nil {
		return nil, t.syntaxError(err)
	}
	sel, ok := stmt.(*sqlparser.Select)
	if !ok || sel.Where == nil || sel.Where.Expr == nil {
		return nil, errs.New(errs.Invalid, "where: not a predicate; %s", allowed)
	}
	return sel.Where.Expr, nil
}

// syntaxError places the grammar's error, which stands after the token that it
// could not take.
func (t *tokens) syntaxError(err error) error {
	var at sqlparser.PositionedErr
	if !errors.As(err, &at) {
		return errs.New(errs.Invalid, "where: the predicate cannot be parsed; %s", allowed)
	}
	out := at.Pos - 2 - len(selectPrefix) // Pos counts from 1 and is behind the token
	if out >= t.out.Len() {
		return t.invalidAt(len(t.in), "the predicate ends early; %s", allowed)
	}
	pos := t.position(out)
	return t.invalidAt(pos, "syntax error; %s", allowed)
}

// parser turns the grammar's tree into ours, giving names and literals their types.
type parser struct {
	*tokens
	schema *segments.Schema
	expr   *Expr
}

const arithmetic = "arithmetic (a name with a minus needs double quotes) is"

func refuse(what string) error {
	return fault("%s not supported; %s", what, allowed)
}

func (p *parser) predicate(e sqlparser.Expr, depth int) (Node, error) {
	if depth > 2*maxDepth {
		return nil, fault("nested deeper than %d levels", maxDepth)
	}
	switch e := e.(type) {
	case *sqlparser.AndExpr:
		args, err := p.chain(e, depth)
		return &And{args}, err
	case *sqlparser.OrExpr:
		args, err := p.chain(e, depth)
		return &Or{args}, err
	case *sqlparser.NotExpr:
		arg, err := p.predicate(e.Expr, depth+1)
		return &Not{arg}, err
	case *sqlparser.ComparisonExpr:
		return p.comparison(e)
	case *sqlparser.BetweenExpr:
		return p.between(e)
	case *sqlparser.IsExpr:
		return p.is(e)
	case *sqlparser.ColName:
		col, err := p.boolean(e)
		if err != nil {
			return nil, err
		}
		return &Compare{Op: Eq, Col: col, Value: Value{Kind: segments.Boolean, Int: 1}}, nil
	case *sqlparser.NullVal:
		return &Const{Unknown}, nil
	case *sqlparser.Literal:
		l, err := p.plain(e)
		switch {
		case err != nil:
			return nil, err
		case l.form != formBool:
			return nil, p.locate(e, fault("a literal alone is no predicate; %s", allowed))
		case l.yes:
			return &Const{True}, nil
		}
		return &Const{False}, nil
	case *sqlparser.BinaryExpr, *sqlparser.UnaryExpr:
		return nil, refuse(arithmetic)
	}
	return nil, refuse("a part of the predicate is")
}

// chain flattens a run of ANDs or ORs, which the grammar nests to the left.
func (p *parser) chain(e sqlparser.Expr, depth int) ([]Node, error) {
	_, isAnd := e.(*sqlparser.AndExpr)
	var args []sqlparser.Expr
	for {
		if and, ok := e.(*sqlparser.AndExpr); ok && isAnd {
			args, e = append(args, and.Right), and.Left
		} else if or, ok := e.(*sqlparser.OrExpr); ok && !isAnd {
			args, e = append(args, or.Right), or.Left
		} else {
			args = append(args, e)
			break
		}
	}
	slices.Reverse(args)
	out := make([]Node, len(args))
	for i, arg := range args {
		var err error
		if out[i], err = p.predicate(arg, depth+1); err != nil {
			return nil, p.locate(arg, err)
		}
	}
	return out, nil
}

var comparisons = map[sqlparser.ComparisonExprOperator]Op{
	sqlparser.EqualOp: Eq, sqlparser.NotEqualOp: Ne, sqlparser.LessThanOp: Lt,
	sqlparser.LessEqualOp: Le, sqlparser.GreaterThanOp: Gt, sqlparser.GreaterEqualOp: Ge,
}

func (p *parser) comparison(e *sqlparser.ComparisonExpr) (Node, error) {
	switch e.Operator {
	case sqlparser.InOp, sqlparser.NotInOp:
		return p.in(e)
	case sqlparser.LikeOp, sqlparser.NotLikeOp:
		return p.like(e)
	}
	op, ok := comparisons[e.Operator]
	if !ok || e.Modifier != sqlparser.Missing {
		return nil, refuse("the operator " + e.Operator.ToString() + " is")
	}
	return p.compare(op, e.Left, e.Right)
}

// compare compares two operands, of which at least one is a column.
func (p *parser) compare(op Op, left, right sqlparser.Expr) (Node, error) {
	l, lok := left.(*sqlparser.ColName)
	r, rok := right.(*sqlparser.ColName)
	switch {
	case lok && rok:
		return p.compareColumns(op, l, r)
	case rok:
		return p.compare(op.flip(), right, left)
	case !lok:
		return p.compareLiterals(op, left, right)
	}
	col, err := p.scalar(l)
	if err != nil {
		return nil, err
	}
	lit, err := p.literal(right, col)
	if err != nil {
		return nil, p.locate(right, err)
	}
	node, err := p.compareValue(op, col, lit)
	return node, p.locate(right, err)
}

func (p *parser) compareColumns(op Op, l, r *sqlparser.ColName) (Node, error) {
	left, err := p.scalar(l)
	if err != nil {
		return nil, err
	}
	right, err := p.scalar(r)
	if err != nil {
		return nil, err
	}
	if comparisonClass(left.Type) == 0 || comparisonClass(left.Type) != comparisonClass(right.Type) {
		return nil, p.locate(r, fault("column %q is %s and column %q is %s: they cannot be compared", left.Name, left.Type, right.Name, right.Type))
	}
	return &CompareColumns{Op: op, Left: left, Right: right}, nil
}

// comparisonClass groups the types whose columns can be compared with each other; 0 is none.
func comparisonClass(t segments.Type) int {
	switch t.Kind {
	case segments.Int, segments.Long, segments.Decimal:
		return 1
	case segments.Float, segments.Double:
		return 2
	case segments.String:
		return 3
	case segments.Binary, segments.Fixed:
		return 4
	case segments.List, segments.Map, segments.Struct:
		return 0
	}
	return 10 + int(t.Kind)
}

func (p *parser) between(e *sqlparser.BetweenExpr) (Node, error) {
	low, err := p.compare(Ge, e.Left, e.From)
	if err != nil {
		return nil, err
	}
	high, err := p.compare(Le, e.Left, e.To)
	if err != nil {
		return nil, err
	}
	if e.IsBetween {
		return &And{[]Node{low, high}}, nil
	}
	return &Not{&And{[]Node{low, high}}}, nil
}

func (p *parser) is(e *sqlparser.IsExpr) (Node, error) {
	name, ok := e.Left.(*sqlparser.ColName)
	if !ok {
		return nil, refuse("IS on anything but a column is")
	}
	switch e.Right {
	case sqlparser.IsNullOp, sqlparser.IsNotNullOp:
		col, err := p.column(name)
		return &IsNull{Col: col, Not: e.Right == sqlparser.IsNotNullOp}, err
	}
	col, err := p.boolean(name)
	if err != nil {
		return nil, err
	}
	is := func(v int64) Node {
		return &Compare{Op: Eq, Col: col, Value: Value{Kind: segments.Boolean, Int: v}}
	}
	switch e.Right {
	case sqlparser.IsTrueOp:
		return &And{[]Node{&IsNull{Col: col, Not: true}, is(1)}}, nil
	case sqlparser.IsFalseOp:
		return &And{[]Node{&IsNull{Col: col, Not: true}, is(0)}}, nil
	case sqlparser.IsNotTrueOp:
		return &Or{[]Node{&IsNull{Col: col}, is(0)}}, nil
	}
	return &Or{[]Node{&IsNull{Col: col}, is(1)}}, nil
}

func (p *parser) in(e *sqlparser.ComparisonExpr) (Node, error) {
	name, ok := e.Left.(*sqlparser.ColName)
	if !ok {
		return nil, refuse("IN on anything but a column is")
	}
	list, ok := e.Right.(sqlparser.ValTuple)
	if !ok {
		return nil, refuse("IN with anything but a list of literals is")
	}
	if len(list) > maxValues {
		return nil, fault("an IN list has %d values, the limit is %d", len(list), maxValues)
	}
	col, err := p.scalar(name)
	if err != nil {
		return nil, err
	}
	in := &In{Col: col}
	nan := false
	for _, v := range list {
		lit, err := p.literal(v, col)
		if err != nil {
			return nil, p.locate(v, err)
		}
		node, err := p.compareValue(Eq, col, lit)
		if err != nil {
			return nil, p.locate(v, err)
		}
		switch node := node.(type) {
		case *Compare:
			in.Values = append(in.Values, node.Value)
		case *IsNaN:
			nan = true
		case *Const:
			in.Null = true
		case *Known: // equals no value of the column
		}
	}
	var out Node = in
	switch {
	case len(in.Values) == 0 && !in.Null:
		out = &Known{Col: col}
	case len(in.Values) == 1 && !in.Null:
		out = &Compare{Op: Eq, Col: col, Value: in.Values[0]}
	}
	if nan {
		out = &Or{[]Node{out, &IsNaN{Col: col}}}
	}
	if e.Operator == sqlparser.NotInOp {
		out = &Not{out}
	}
	return out, nil
}

// column resolves a name.
func (p *parser) column(name *sqlparser.ColName) (*Column, error) {
	parts := make([]word, 0, 3)
	for _, id := range []string{
		name.Qualifier.Qualifier.String(), name.Qualifier.Name.String(), name.Name.String(),
	} {
		if id == "" {
			continue
		}
		n, err := strconv.Atoi(id)
		if err != nil || n >= len(p.names) {
			return nil, refuse("a name is")
		}
		parts = append(parts, p.names[n])
	}
	field, ok := p.schema.Field(parts[0].name)
	if !ok {
		return nil, p.unknown(parts[0], p.schema.Names())
	}
	col := &Column{Root: field.ID, Name: parts[0].name}
	for _, part := range parts[1:] {
		var names []string
		found := false
		if field.Type.Kind == segments.Struct {
			for _, child := range field.Type.Children {
				names = append(names, child.Name)
				if child.Name == part.name {
					field, found = child, true
					break
				}
			}
		} else {
			return nil, p.invalidAt(part.pos, "column %q is %s and has no field %q", col.Name, field.Type, part.name)
		}
		if !found {
			return nil, p.unknown(part, names)
		}
		col.Name += "." + part.name
		col.path = append(col.path, part.name)
	}
	col.ID, col.Type = field.ID, field.Type
	p.use(col.Root)
	return col, nil
}

func (p *parser) use(id int32) {
	for _, have := range p.expr.columns {
		if have == id {
			return
		}
	}
	p.expr.columns = append(p.expr.columns, id)
}

// scalar resolves a name of a column that can be compared.
func (p *parser) scalar(name *sqlparser.ColName) (*Column, error) {
	col, err := p.column(name)
	if err == nil && col.Type.Kind.Nested() {
		return nil, p.locate(name, fault("column %q is %s: only IS [NOT] NULL is possible with it", col.Name, col.Type))
	}
	return col, err
}

func (p *parser) boolean(name *sqlparser.ColName) (*Column, error) {
	col, err := p.column(name)
	if err == nil && col.Type.Kind != segments.Boolean {
		return nil, p.locate(name, fault("column %q is %s, not boolean: compare it with something", col.Name, col.Type))
	}
	return col, err
}

// unknown names the columns there are, the most alike first.
func (p *parser) unknown(w word, names []string) error {
	best, distance := "", len(w.name)/2+1
	for _, n := range names {
		d := editDistance(strings.ToLower(n), strings.ToLower(w.name))
		if d < distance {
			best, distance = n, d
		}
	}
	if best != "" {
		return p.invalidAt(w.pos, "unknown column %q; did you mean %q? (names are case-sensitive; texts stand in single quotes)", w.name, best)
	}
	const most = 20
	list := strings.Join(names[:min(most, len(names))], ", ")
	if len(names) > most {
		list += ", …"
	}
	return p.invalidAt(w.pos, "unknown column %q; the columns are %s (texts stand in single quotes)", w.name, list)
}

// editDistance is Levenshtein's, of short names.
func editDistance(a, b string) int {
	const most = 64
	if len(a) > most || len(b) > most {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
