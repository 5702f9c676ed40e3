import java.math.BigDecimal;
import java.math.BigInteger;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;

/** Binds a scenario's parameters and calls its getters. */
final class Values {
    private Values() {}

    static void bind(PreparedStatement statement, List<Object> parameters) throws SQLException {
        for (int i = 0; i < parameters.size(); i++) {
            Object given = parameters.get(i);
            if (given == null) {
                statement.setNull(i + 1, Types.NULL);
            } else if (given instanceof Map<?, ?> typed) {
                set(statement, i + 1, (String) typed.get("type"), String.valueOf(typed.get("value")), typed);
            } else if (given instanceof Long number) {
                statement.setLong(i + 1, number);
            } else if (given instanceof Double number) {
                statement.setDouble(i + 1, number);
            } else if (given instanceof Boolean truth) {
                statement.setBoolean(i + 1, truth);
            } else {
                statement.setString(i + 1, given.toString());
            }
        }
    }

    private static void set(PreparedStatement statement, int at, String type, String value, Map<?, ?> typed)
            throws SQLException {
        switch (type) {
            case "unsigned": statement.setObject(at, new BigInteger(value)); break;
            case "decimal": statement.setBigDecimal(at, new BigDecimal(value)); break;
            case "double": statement.setDouble(at, Double.parseDouble(value)); break;
            case "float": statement.setFloat(at, Float.parseFloat(value)); break;
            case "bytes": statement.setBytes(at, HexFormat.of().parseHex(value)); break;
            case "timestamp": statement.setTimestamp(at, Timestamp.valueOf(value)); break;
            case "datetime": statement.setObject(at, LocalDateTime.parse(value)); break;
            case "offset": statement.setObject(at, OffsetDateTime.parse(value)); break;
            case "date": statement.setObject(at, LocalDate.parse(value)); break;
            case "repeat": statement.setString(at, value.repeat(((Long) typed.get("count")).intValue())); break;
            default: throw new Misuse("unknown type of a parameter: " + type);
        }
    }

    static Object get(ResultSet rows, int column, String getter) throws SQLException {
        switch (getter) {
            case "getObject": return rows.getObject(column);
            case "getString": return rows.getString(column);
            case "getInt": return rows.getInt(column);
            case "getLong": return rows.getLong(column);
            case "getShort": return rows.getShort(column);
            case "getDouble": return rows.getDouble(column);
            case "getBigDecimal": return rows.getBigDecimal(column);
            case "getBoolean": return rows.getBoolean(column);
            case "getBytes": return rows.getBytes(column);
            case "getDate": return rows.getDate(column);
            case "getTime": return rows.getTime(column);
            case "getTimestamp": return rows.getTimestamp(column);
            case "BigInteger": return rows.getObject(column, BigInteger.class);
            case "LocalDateTime": return rows.getObject(column, LocalDateTime.class);
            case "LocalDate": return rows.getObject(column, LocalDate.class);
            case "OffsetDateTime": return rows.getObject(column, OffsetDateTime.class);
            default: throw new Misuse("unknown getter " + getter);
        }
    }
}
