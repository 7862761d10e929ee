package lakehouse

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// dataName is what a data file's name says: "b00003-<base 20>-<end 20>-<uuid>.parquet".
type dataName struct {
	bucket    int32
	base, end int64 // half-open
	id        uuid.UUID
}

func (n dataName) String() string {
	return fmt.Sprintf("b%05d-%020d-%020d-%s.parquet", n.bucket, n.base, n.end, n.id)
}

// parseDataKey reads the name of a data file's key; false for a file that Firn did not name.
func parseDataKey(key string) (dataName, bool) {
	name, ok := strings.CutSuffix(key[strings.LastIndexByte(key, '/')+1:], ".parquet")
	if !ok {
		return dataName{}, false
	}
	parts := strings.SplitN(name, "-", 4)
	if len(parts) != 4 || len(parts[0]) < 6 || parts[0][0] != 'b' || len(parts[1]) != 20 || len(parts[2]) != 20 {
		return dataName{}, false
	}
	bucket, err1 := strconv.ParseInt(parts[0][1:], 10, 32)
	base, err2 := strconv.ParseInt(parts[1], 10, 64)
	end, err3 := strconv.ParseInt(parts[2], 10, 64)
	id, err4 := uuid.Parse(parts[3])
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || bucket < 0 || base < 0 || end < base {
		return dataName{}, false
	}
	return dataName{bucket: int32(bucket), base: base, end: end, id: id}, true
}
