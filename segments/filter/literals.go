package filter

import (
	"bytes"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"vitess.io/vitess/go/vt/sqlparser"

	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows/literal"
)

// form is how a literal is written.
type form uint8

const (
	formNull form = iota
	formBool
	formNumber
	formText
	formDate      // DATE '…'
	formTime      // TIME '…'
	formTimestamp // TIMESTAMP '…'
	formHex       // x'…'
)

// lit is a literal before it gets the type of its column.
type lit struct {
	form form
	text string // of a number, with its sign; of a text, what it holds
	yes  bool
}

// literal reads a literal of the grammar's tree. col is for messages; nil is none.
func (p *parser) literal(e sqlparser.Expr, col *Column) (lit, error) {
	switch e := e.(type) {
	case *sqlparser.NullVal:
		return lit{form: formNull}, nil
	case *sqlparser.Literal:
		return p.plain(e)
	case *sqlparser.UnaryExpr:
		inner, err := p.literal(e.Expr, col)
		if err != nil || inner.form != formNumber {
			return lit{}, refuse(arithmetic)
		}
		switch {
		case e.Operator == sqlparser.UMinusOp && strings.HasPrefix(inner.text, "-"):
			inner.text = inner.text[1:]
		case e.Operator == sqlparser.UMinusOp:
			inner.text = "-" + inner.text
		case e.Operator != sqlparser.UPlusOp:
			return lit{}, refuse(arithmetic)
		}
		return inner, nil
	case *sqlparser.BinaryExpr:
		return lit{}, refuse(arithmetic)
	case *sqlparser.ColName:
		return lit{}, refuse("a column in place of a literal is")
	}
	return lit{}, refuse("an expression in place of a literal is")
}

func (p *parser) plain(e *sqlparser.Literal) (lit, error) {
	w, ok := p.written(e)
	if !ok {
		return lit{}, refuse("the literal is")
	}
	l := lit{form: w.form, text: w.text, yes: w.form == formBool && w.text == "TRUE"}
	switch e.Type {
	case sqlparser.DateVal:
		l.form = formDate
	case sqlparser.TimeVal:
		l.form = formTime
	case sqlparser.TimestampVal:
		l.form = formTimestamp
	}
	return l, nil
}

func mistyped(col *Column, want string) error {
	return fault("column %q is %s: compare it with %s", col.Name, col.Type, want)
}

func badLiteral(col *Column, text string, err error) error {
	return fault("column %q is %s: '%s' is %v", col.Name, col.Type, text, err)
}

// compareValue compares a column with a literal, which takes the column's type.
func (p *parser) compareValue(op Op, col *Column, l lit) (Node, error) {
	if l.form == formNull {
		return &Const{Unknown}, nil
	}
	v := Value{Kind: col.Type.Kind}
	var err error
	switch col.Type.Kind {
	case segments.Int, segments.Long, segments.Decimal:
		return compareExact(op, col, l)
	case segments.Float, segments.Double:
		return compareFloat(op, col, l)
	case segments.Boolean:
		yes := l.yes || l.form == formText && strings.EqualFold(l.text, "true")
		if l.form != formBool && !(l.form == formText && (yes || strings.EqualFold(l.text, "false"))) || op > Ne {
			return nil, mistyped(col, "TRUE or FALSE, by = or <>")
		}
		if yes {
			v.Int = 1
		}
	case segments.String:
		if l.form != formText {
			return nil, mistyped(col, "a text in single quotes")
		}
		v.Bytes = []byte(l.text)
	case segments.Binary, segments.Fixed:
		if l.form != formHex || col.Type.Kind == segments.Fixed && len(l.text) != col.Type.Length {
			return nil, mistyped(col, "x'…' (hexadecimal, of the column's length)")
		}
		v.Bytes = []byte(l.text)
	case segments.UUID:
		if l.form != formText {
			return nil, mistyped(col, "a uuid in single quotes")
		}
		var u [16]byte
		if u, err = literal.UUID([]byte(l.text)); err != nil {
			return nil, badLiteral(col, l.text, err)
		}
		v.Bytes = u[:]
	default:
		if v.Int, err = temporal(col, l); err != nil {
			return nil, err
		}
	}
	return &Compare{Op: op, Col: col, Value: v}, nil
}

// temporal reads a literal of a date, time or timestamp column.
func temporal(col *Column, l lit) (int64, error) {
	text := []byte(l.text)
	var v int64
	var err error
	switch kind := col.Type.Kind; {
	case kind == segments.Date && (l.form == formText || l.form == formDate):
		var days int32
		days, err = literal.Date(text)
		v = int64(days)
	case kind == segments.Time && (l.form == formText || l.form == formTime):
		v, err = literal.Time(text)
	case kind == segments.Timestamp || kind == segments.TimestampTZ:
		switch l.form {
		case formText, formTimestamp, formDate:
			v, err = instant(text, kind == segments.TimestampTZ)
		case formNumber:
			n, perr := literal.ParseNumber(text)
			if err = perr; err == nil {
				v, err = n.Int64()
			}
		default:
			return 0, mistyped(col, "a timestamp in single quotes, or integer epoch microseconds")
		}
	default:
		return 0, mistyped(col, "a "+col.Type.Kind.String()+" in single quotes")
	}
	if err != nil {
		return 0, badLiteral(col, l.text, err)
	}
	return v, nil
}

// instant reads a timestamp. A day alone is its midnight; where a zone belongs
// and none is given it is UTC.
func instant(text []byte, zone bool) (int64, error) {
	if days, err := literal.Date(text); err == nil {
		const micros = 24 * 60 * 60 * 1_000_000
		if v := int64(days) * micros; v/micros == int64(days) {
			return v, nil
		}
		return 0, literal.ErrTooFar
	}
	v, err := literal.Timestamp(text, zone)
	if err == literal.ErrZoneMissing {
		return literal.Timestamp(text, false)
	}
	return v, err
}

// compareExact compares an integer or decimal column with a number, which may
// lie between two of its values or beyond all of them.
func compareExact(op Op, col *Column, l lit) (Node, error) {
	if l.form != formNumber && l.form != formText {
		return nil, mistyped(col, "a number")
	}
	n, err := literal.ParseNumber([]byte(l.text))
	if err != nil {
		return nil, badLiteral(col, l.text, err)
	}
	scale := 0
	low, high := big.NewInt(math.MinInt64), big.NewInt(math.MaxInt64)
	switch col.Type.Kind {
	case segments.Int:
		low, high = big.NewInt(math.MinInt32), big.NewInt(math.MaxInt32)
	case segments.Decimal:
		scale = col.Type.Scale
		high = new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(col.Type.Precision)), nil)
		high.Sub(high, big.NewInt(1))
		low = new(big.Int).Neg(high)
	}
	floor, exact := floorOf(n, scale)
	if !exact {
		switch op {
		case Eq, Ne:
			return &Known{Col: col, Value: op == Ne}, nil
		case Lt, Le:
			op = Le
		default:
			op = Gt
		}
	}
	if floor.Cmp(high) > 0 {
		return &Known{Col: col, Value: op == Lt || op == Le || op == Ne}, nil
	}
	if floor.Cmp(low) < 0 {
		return &Known{Col: col, Value: op == Gt || op == Ge || op == Ne}, nil
	}
	v := Value{Kind: col.Type.Kind}
	if v.Kind == segments.Decimal {
		v.Dec = decimal128.FromBigInt(floor)
	} else {
		v.Int = floor.Int64()
	}
	return &Compare{Op: op, Col: col, Value: v}, nil
}

// floorOf returns the largest integer that is not above n × 10^scale, and
// whether it is equal. What is far beyond every type is cut.
func floorOf(n literal.Number, scale int) (*big.Int, bool) {
	const far = 200 // digits
	v, ok := new(big.Int).SetString(string(n.Lead)+string(n.Trail), 10)
	if !ok {
		return new(big.Int), true // no digits: zero
	}
	if n.Neg {
		v.Neg(v)
	}
	ten := big.NewInt(10)
	shift := scale - n.Scale
	if shift >= 0 {
		return v.Mul(v, new(big.Int).Exp(ten, big.NewInt(int64(min(shift, far))), nil)), true
	}
	if n.Digits() < -shift { // between 0 and ±1
		return big.NewInt(int64(v.Sign()-1) / 2), false
	}
	rem := new(big.Int)
	v.DivMod(v, new(big.Int).Exp(ten, big.NewInt(int64(-shift)), nil), rem)
	return v, rem.Sign() == 0
}

func compareFloat(op Op, col *Column, l lit) (Node, error) {
	if l.form != formNumber && l.form != formText {
		return nil, mistyped(col, "a number")
	}
	v := Value{Kind: col.Type.Kind}
	switch strings.ToLower(l.text) {
	case "nan":
		if op > Ne {
			return nil, fault("column %q: NaN is neither less nor greater than a number; use = 'NaN' or <> 'NaN'", col.Name)
		}
		return &IsNaN{Col: col, Not: op == Ne}, nil
	case "infinity", "+infinity", "inf":
		v.Float = math.Inf(1)
	case "-infinity", "-inf":
		v.Float = math.Inf(-1)
	default:
		if _, err := literal.ParseNumber([]byte(l.text)); err != nil {
			return nil, badLiteral(col, l.text, err)
		}
		bits := 64
		if col.Type.Kind == segments.Float {
			bits = 32
		}
		f, err := strconv.ParseFloat(l.text, bits)
		if err != nil {
			return nil, fault("column %q is %s: %s is outside its range", col.Name, col.Type, l.text)
		}
		v.Float = f
	}
	return &Compare{Op: op, Col: col, Value: v}, nil
}

// compareLiterals evaluates a comparison without a column, such as 1 = 1.
func (p *parser) compareLiterals(op Op, left, right sqlparser.Expr) (Node, error) {
	l, err := p.literal(left, nil)
	if err != nil {
		return nil, err
	}
	r, err := p.literal(right, nil)
	if err != nil {
		return nil, err
	}
	c := 0
	switch {
	case l.form == formNull || r.form == formNull:
		return &Const{Unknown}, nil
	case l.form == formNumber && r.form == formNumber:
		a, aerr := literal.ParseNumber([]byte(l.text))
		b, berr := literal.ParseNumber([]byte(r.text))
		if aerr != nil || berr != nil {
			return nil, refuse("the literal is")
		}
		scale := max(a.Scale, b.Scale)
		if scale > 200 || a.Scale < -200 || b.Scale < -200 {
			return nil, refuse("the literal is")
		}
		x, _ := floorOf(a, scale)
		y, _ := floorOf(b, scale)
		c = x.Cmp(y)
	case l.form == formText && r.form == formText:
		c = bytes.Compare([]byte(l.text), []byte(r.text))
	default:
		return nil, refuse("comparing these two literals is")
	}
	if op.holds(c) {
		return &Const{True}, nil
	}
	return &Const{False}, nil
}
