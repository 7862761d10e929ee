package lakehouse

import (
	"bytes"
	"encoding/binary"

	"github.com/apache/arrow-go/v18/parquet/metadata"

	"github.com/firn-data/firn/internal/errs"
)

// plainIntegers rewrites the footer of a finished Parquet file so that int and
// long columns carry no integer annotation. Iceberg maps int and long to bare
// INT32 and INT64, as its own writers do; arrow-go annotates them as signed
// integers of 32 and 64 bits, which says the same, but Spark's vectorised reader
// then fails on a column that was widened from int to long (a cast from
// BigIntVector to IntVector, seen with iceberg-spark-runtime 1.10).
func plainIntegers(body []byte) ([]byte, error) {
	const tail = 8 // footer length, magic
	length := int(binary.LittleEndian.Uint32(body[len(body)-tail:]))
	start := len(body) - tail - length
	meta, err := metadata.NewFileMetaData(body[start:len(body)-tail], nil)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "read parquet footer", err)
	}
	for _, element := range meta.FileMetaData.Schema {
		if l := element.LogicalType; l != nil && l.INTEGER != nil {
			element.LogicalType, element.ConvertedType = nil, nil
		}
	}
	var footer bytes.Buffer
	if _, err := meta.WriteTo(&footer, nil); err != nil {
		return nil, errs.Wrap(errs.Internal, "write parquet footer", err)
	}
	body = append(body[:start], footer.Bytes()...)
	body = binary.LittleEndian.AppendUint32(body, uint32(footer.Len()))
	return append(body, "PAR1"...), nil
}
