package literal

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/stretchr/testify/require"
)

func TestDatesAgreeWithTheStandardLibrary(t *testing.T) {
	for days := int32(-800_000); days < 3_000_000; days += 37 {
		text := AppendDate(nil, days)
		want := time.Unix(int64(days)*86400, 0).UTC()
		if y := want.Year(); y >= 0 && y <= 9999 {
			require.Equal(t, want.Format("2006-01-02"), string(text))
		}
		got, err := Date(text)
		require.NoError(t, err, "%s", text)
		require.Equal(t, days, got, "%s", text)
	}
	for _, days := range []int32{math.MinInt32, math.MaxInt32, 0, -1} {
		got, err := Date(AppendDate(nil, days))
		require.NoError(t, err)
		require.Equal(t, days, got)
	}
}

func TestTimestampsRoundTripAndAgreeWithRFC3339(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		us := r.Int64N(315_000_000_000_000_000) - 62_000_000_000_000_000
		if r.IntN(2) == 0 {
			us -= us % 1_000_000
		}
		text := AppendTimestamp(nil, us, true)
		got, err := Timestamp(text, true)
		require.NoError(t, err, "%s", text)
		require.Equal(t, us, got)
		std, err := time.Parse(time.RFC3339Nano, string(text))
		if err == nil {
			require.Equal(t, us, std.UnixMicro(), "%s", text)
		}
		plain, err := Timestamp(AppendTimestamp(nil, us, false), false)
		require.NoError(t, err)
		require.Equal(t, us, plain)
	}
}

func TestDecimalsAgreeWithBigRationals(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 20_000 {
		scale := r.IntN(39)
		digits := 1 + r.IntN(38)
		n := new(big.Int)
		for range digits {
			n.Mul(n, big.NewInt(10)).Add(n, big.NewInt(int64(r.IntN(10))))
		}
		if r.IntN(2) == 0 {
			n.Neg(n)
		}
		v := decimal128.FromBigInt(n)
		text := AppendDecimal(nil, v, scale)
		want := new(big.Rat).SetFrac(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil))
		require.Equal(t, want.FloatString(scale), string(text))
		got, err := Decimal(text, 38, scale)
		require.NoError(t, err, "%s", text)
		require.Equal(t, v, got, "%s", text)
	}
}

func TestNumbersAreExact(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-0": 0, "1e3": 1000, "1.50e1": 15, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64,
		"0.000e-5000000": 0, "+7": 7, "100e-2": 1, "000012": 12, "5.": 5,
	} {
		n, err := ParseNumber([]byte(text))
		require.NoError(t, err, text)
		got, err := n.Int64()
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, want := range map[string]error{
		"": ErrNumber, ".": ErrNumber, "-": ErrNumber, "1e": ErrNumber, "1e+": ErrNumber, "1x": ErrNumber, "0x1": ErrNumber, "1.2.3": ErrNumber, " 1": ErrNumber,
		"1e99999999999999999999": ErrExponentRange, "9223372036854775808": ErrPrecision, "-9223372036854775809": ErrPrecision, "0.1": ErrFraction, "1e-1": ErrFraction,
	} {
		n, err := ParseNumber([]byte(text))
		if err == nil {
			_, err = n.Int64()
		}
		require.Equal(t, want, err, text)
	}
}

func TestUUIDsRoundTrip(t *testing.T) {
	u, err := UUID([]byte("F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6"))
	require.NoError(t, err)
	require.Equal(t, "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", string(AppendUUID(nil, u[:])))
	for _, bad := range []string{"", "f81d4fae7dec11d0a76500a0c91e6bf6", "g81d4fae-7dec-11d0-a765-00a0c91e6bf6", "f81d4fae-7dec-11d0-a765-00a0c91e6bf60"} {
		_, err := UUID([]byte(bad))
		require.Equal(t, ErrUUID, err)
	}
}

func FuzzTimestamp(f *testing.F) {
	for _, s := range []string{"2001-01-01T00:47:00Z", "+12345-01-01 23:59:59.999999-23:59", "-0001-12-31T00:00:00", "1970-01-01T00:00:00.000000000+00:00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, zone := range []bool{false, true} {
			us, err := Timestamp([]byte(s), zone)
			if err != nil {
				continue
			}
			again, err := Timestamp(AppendTimestamp(nil, us, zone), zone)
			require.NoError(t, err)
			require.Equal(t, us, again)
		}
	})
}
