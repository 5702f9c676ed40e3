import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Actions that run SQL; each returns facts, and leaves exceptions to its caller. */
final class Statements {
    private static final int SHOWN = 20;

    private Statements() {}

    static Map<String, Object> sql(Connection on, String sql, Map<String, Object> step) throws SQLException {
        try (Statement statement = on.createStatement()) {
            configure(statement, step);
            boolean keys = Boolean.TRUE.equals(step.get("keys"));
            boolean rows = statement.execute(sql, keys ? Statement.RETURN_GENERATED_KEYS : Statement.NO_GENERATED_KEYS);
            return outcome(statement, rows, keys);
        }
    }

    /** Several texts added to one Statement and sent as a batch. */
    static Map<String, Object> texts(Connection on, List<Object> texts, Map<String, Object> step) throws SQLException {
        try (Statement statement = on.createStatement()) {
            configure(statement, step);
            for (Object text : texts) {
                statement.addBatch(text.toString());
            }
            Map<String, Object> facts = new LinkedHashMap<>();
            facts.put("counts", Facts.counts(statement.executeBatch()));
            return facts;
        }
    }

    static PreparedStatement prepare(Connection on, String sql, Map<String, Object> step) throws SQLException {
        boolean keys = Boolean.TRUE.equals(step.get("keys"));
        PreparedStatement statement =
                keys ? on.prepareStatement(sql, Statement.RETURN_GENERATED_KEYS) : on.prepareStatement(sql);
        configure(statement, step);
        return statement;
    }

    /** Run a prepared statement with {@code params}, or a batch of them, {@code repeat} times; the last run's facts. */
    static Map<String, Object> run(PreparedStatement statement, Map<String, Object> step) throws SQLException {
        long repeat = step.get("repeat") == null ? 1 : (Long) step.get("repeat");
        boolean keys = Boolean.TRUE.equals(step.get("keys"));
        Map<String, Object> facts = Map.of();
        for (long i = 0; i < repeat; i++) {
            if (step.get("batch") != null) {
                facts = batch(statement, Json.list(step.get("batch")), keys);
            } else {
                Values.bind(statement, Json.list(step.get("params")));
                facts = outcome(statement, statement.execute(), keys);
            }
        }
        return facts;
    }

    private static Map<String, Object> batch(PreparedStatement statement, List<Object> batch, boolean keys)
            throws SQLException {
        for (Object parameters : batch) {
            Values.bind(statement, Json.list(parameters));
            statement.addBatch();
        }
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("counts", Facts.counts(statement.executeBatch()));
        if (keys) {
            facts.put("keys", keys(statement));
        }
        facts.put("warnings", Facts.warnings(statement.getWarnings()));
        return facts;
    }

    private static void configure(Statement statement, Map<String, Object> step) throws SQLException {
        if (step.get("timeout") != null) {
            statement.setQueryTimeout(((Long) step.get("timeout")).intValue());
        }
        if (step.get("fetch") != null) {
            statement.setFetchSize("min".equals(step.get("fetch")) ? Integer.MIN_VALUE : ((Long) step.get("fetch")).intValue());
        }
    }

    private static Map<String, Object> outcome(Statement statement, boolean rows, boolean keys) throws SQLException {
        List<Object> results = new ArrayList<>();
        boolean isRows = rows;
        while (true) {
            if (isRows) {
                try (ResultSet set = statement.getResultSet()) {
                    results.add(Facts.rows(set, SHOWN));
                }
            } else {
                long count = statement.getUpdateCount();
                if (count == -1) {
                    break;
                }
                results.add(Map.of("update", count));
                if (keys && results.size() == 1) {
                    results.add(Map.of("keys", keys(statement)));
                }
            }
            isRows = statement.getMoreResults();
        }
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("results", results);
        facts.put("warnings", Facts.warnings(statement.getWarnings()));
        return facts;
    }

    private static List<Object> keys(Statement statement) throws SQLException {
        List<Object> list = new ArrayList<>();
        try (ResultSet keys = statement.getGeneratedKeys()) {
            while (keys.next()) {
                list.add(Facts.value(keys.getObject(1)));
            }
        }
        return list;
    }

    /** Read a result row by row; {@code meanwhile} runs another statement on the connection after the first row. */
    static Map<String, Object> stream(Connection on, String sql, Map<String, Object> step) throws SQLException {
        Map<String, Object> facts = new LinkedHashMap<>();
        long stop = step.get("stop_after") == null ? Long.MAX_VALUE : (Long) step.get("stop_after");
        StringBuilder all = new StringBuilder();
        long count = 0;
        try (PreparedStatement statement = on.prepareStatement(sql)) {
            configure(statement, step);
            try (ResultSet rows = statement.executeQuery()) {
                while (count < stop && rows.next()) {
                    all.append(rows.getString(1)).append('\n');
                    if (++count == 1 && step.get("meanwhile") != null) {
                        facts.put("meanwhile", meanwhile(on, (String) step.get("meanwhile")));
                    }
                }
            }
        } catch (SQLException thrown) {
            facts.put("error", Facts.exception(thrown)); // with what was read before it
        }
        facts.put("count", count);
        facts.put("values", Facts.hash(all.toString()));
        return facts;
    }

    private static Map<String, Object> meanwhile(Connection on, String sql) {
        try (Statement other = on.createStatement()) {
            return outcome(other, other.execute(sql), false);
        } catch (SQLException thrown) {
            return Map.of("error", Facts.exception(thrown));
        }
    }

    static Map<String, Object> columns(Connection on, String sql, boolean unrun) throws SQLException {
        try (PreparedStatement statement = on.prepareStatement(sql)) {
            if (unrun) {
                var meta = statement.getMetaData(); // before any execution: what code generators do
                return meta == null ? Map.of("columns", "none") : Map.of("columns", Facts.columns(meta));
            }
            try (ResultSet rows = statement.executeQuery()) {
                return Map.of("columns", Facts.columns(rows.getMetaData()));
            }
        }
    }

    /** The first row by several getters: column label -> getter -> value or exception. */
    static Map<String, Object> getters(Connection on, String sql, List<Object> getters, List<Object> parameters)
            throws SQLException {
        Map<String, Object> facts = new LinkedHashMap<>();
        try (PreparedStatement statement = on.prepareStatement(sql)) {
            Values.bind(statement, parameters);
            try (ResultSet rows = statement.executeQuery()) {
                if (!rows.next()) {
                    return Map.of("count", 0);
                }
                for (int column = 1; column <= rows.getMetaData().getColumnCount(); column++) {
                    Map<String, Object> values = new LinkedHashMap<>();
                    for (Object getter : getters) {
                        values.put(getter.toString(), got(rows, column, getter.toString()));
                    }
                    facts.put(rows.getMetaData().getColumnLabel(column), values);
                }
            }
        }
        return facts;
    }

    private static Map<String, Object> got(ResultSet rows, int column, String getter) {
        try {
            return Facts.value(Values.get(rows, column, getter));
        } catch (Misuse misuse) {
            throw misuse;
        } catch (SQLException | RuntimeException thrown) {
            return Map.of("error", Facts.exception(thrown));
        }
    }

    /** Change a row through the result set. */
    static Map<String, Object> updatable(Connection on, String sql, String column, String value) throws SQLException {
        try (Statement statement = on.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE);
                ResultSet rows = statement.executeQuery(sql)) {
            Map<String, Object> facts = new LinkedHashMap<>();
            facts.put("concurrency", rows.getConcurrency());
            facts.put("found", rows.next());
            rows.updateString(column, value);
            rows.updateRow();
            facts.put("now", rows.getString(column));
            return facts;
        }
    }
}
