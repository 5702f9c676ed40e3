import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.sql.BatchUpdateException;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.SQLWarning;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.springframework.dao.DataAccessException;
import org.springframework.dao.TransientDataAccessException;
import org.springframework.jdbc.support.SQLErrorCodeSQLExceptionTranslator;
import org.springframework.jdbc.support.SQLExceptionSubclassTranslator;

/** What a client sees, as data: values with their Java class, exceptions with code, state and standard class. */
final class Facts {
    static final int LONG_TEXT = 200;

    private Facts() {}

    static Map<String, Object> value(Object value) {
        Map<String, Object> facts = new LinkedHashMap<>();
        if (value == null) {
            facts.put("class", null);
            return facts;
        }
        facts.put("class", value.getClass().getName());
        facts.put("value", text(value));
        return facts;
    }

    static String text(Object value) {
        String text;
        if (value instanceof byte[] bytes) {
            text = "0x" + HexFormat.of().formatHex(bytes);
        } else if (value instanceof BigDecimal decimal) {
            text = decimal.toPlainString();
        } else {
            text = value.toString();
        }
        if (text.length() <= LONG_TEXT) {
            return text;
        }
        return text.length() + " characters, SHA-256 " + hash(text);
    }

    static String hash(String text) {
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
            return HexFormat.of().formatHex(digest, 0, 8);
        } catch (NoSuchAlgorithmException missing) {
            throw new IllegalStateException(missing);
        }
    }

    /** Class, code and state are compared; the message is reported beside them, as every engine words it its own way. */
    static Map<String, Object> exception(Throwable thrown) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("class", thrown.getClass().getName());
        if (thrown instanceof SQLException sql) {
            facts.put("code", sql.getErrorCode());
            facts.put("sqlstate", sql.getSQLState());
            facts.put("standard", standard(sql));
            if (sql instanceof BatchUpdateException batch) {
                facts.put("counts", counts(batch.getUpdateCounts()));
            }
            facts.put("spring", spring(sql));
        }
        facts.put("told", message(thrown));
        return facts;
    }

    private static String message(Throwable thrown) {
        String message = String.valueOf(thrown.getMessage());
        Throwable cause = thrown.getCause();
        if (!(thrown instanceof SQLException) && cause != null) {
            message += " <- " + cause.getClass().getName() + ": " + cause.getMessage();
        }
        return message.length() > 500 ? message.substring(0, 500) + " (cut)" : message;
    }

    /** The nearest class of java.sql: what a retry that knows no driver looks at. */
    private static String standard(SQLException thrown) {
        Class<?> type = thrown.getClass();
        while (!type.getName().startsWith("java.sql.")) {
            type = type.getSuperclass();
        }
        return type.getSimpleName();
    }

    /** What Spring makes of it: by its table of MySQL's codes, and by class and SQLSTATE (the default of Spring 6). */
    private static Map<String, Object> spring(SQLException thrown) {
        Map<String, Object> facts = new LinkedHashMap<>();
        DataAccessException byCode = new SQLErrorCodeSQLExceptionTranslator("MySQL").translate("task", "sql", thrown);
        DataAccessException byClass = new SQLExceptionSubclassTranslator().translate("task", "sql", thrown);
        facts.put("by_code", byCode == null ? null : byCode.getClass().getSimpleName());
        facts.put("by_code_transient", byCode instanceof TransientDataAccessException);
        facts.put("by_class", byClass == null ? null : byClass.getClass().getSimpleName());
        facts.put("by_class_transient", byClass instanceof TransientDataAccessException);
        return facts;
    }

    static List<Object> counts(int[] counts) {
        List<Object> list = new ArrayList<>();
        if (counts != null) {
            for (int count : counts) {
                list.add(count);
            }
        }
        return list;
    }

    static List<Object> warnings(SQLWarning first) {
        List<Object> list = new ArrayList<>();
        for (SQLWarning one = first; one != null && list.size() < 20; one = one.getNextWarning()) {
            Map<String, Object> facts = new LinkedHashMap<>();
            facts.put("code", one.getErrorCode());
            facts.put("sqlstate", one.getSQLState());
            facts.put("told", one.getMessage());
            list.add(facts);
        }
        return list;
    }

    /** Rows as lists of values, at most {@code limit} shown; the count is of all. */
    static Map<String, Object> rows(ResultSet rows, int limit) throws SQLException {
        int width = rows.getMetaData().getColumnCount();
        List<Object> shown = new ArrayList<>();
        int count = 0;
        String sequence = "";
        long multiset = 0;
        while (rows.next()) {
            List<Object> row = new ArrayList<>();
            for (int column = 1; column <= width; column++) {
                row.add(got(rows, column));
            }
            if (count++ < limit) {
                shown.add(row);
            }
            String hash = hash(Json.write(row));
            sequence = hash(sequence + hash);
            multiset += Long.parseUnsignedLong(hash, 16); // a sum, so that the order is free and pairs do not cancel
        }
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("rows", shown);
        facts.put("count", count);
        if (count > limit) { // rows that are not shown are compared too
            facts.put("sequence", sequence);
            facts.put("multiset", Long.toUnsignedString(multiset));
        }
        return facts;
    }

    private static Object got(ResultSet rows, int column) {
        try {
            return value(rows.getObject(column));
        } catch (SQLException | RuntimeException thrown) {
            return Map.of("error", exception(thrown));
        }
    }

    static List<Object> columns(ResultSetMetaData meta) throws SQLException {
        List<Object> list = new ArrayList<>();
        for (int i = 1; i <= meta.getColumnCount(); i++) {
            Map<String, Object> facts = new LinkedHashMap<>();
            facts.put("label", meta.getColumnLabel(i));
            facts.put("type", meta.getColumnType(i));
            facts.put("type_name", meta.getColumnTypeName(i));
            facts.put("class", meta.getColumnClassName(i));
            facts.put("precision", meta.getPrecision(i));
            facts.put("scale", meta.getScale(i));
            facts.put("display_size", meta.getColumnDisplaySize(i));
            facts.put("nullable", meta.isNullable(i));
            facts.put("auto_increment", meta.isAutoIncrement(i));
            facts.put("signed", meta.isSigned(i));
            facts.put("table", meta.getTableName(i));
            list.add(facts);
        }
        return list;
    }
}
