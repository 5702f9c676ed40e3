import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** One scenario on one side through one pool: what its steps name (connections, statements, ids) lives here. */
final class Cell implements AutoCloseable {
    /** Hands one step's facts to whoever listens. */
    interface Listener {
        void step(int number, Map<String, Object> facts, long millis);
    }

    /** Asks the controller to do something to the network or the server; returns when it is done. */
    interface Controller {
        Map<String, Object> ask(Map<String, Object> what) throws InterruptedException;
    }

    private static final String MAIN = "c";
    private final Map<String, Object> cell;
    private final Side side;
    private final Controller controller;
    private final Map<String, Connection> connections = new ConcurrentHashMap<>();
    private final Map<String, PreparedStatement> prepared = new ConcurrentHashMap<>();
    private final Map<String, String> names = new ConcurrentHashMap<>();
    private final Map<String, Savepoint> savepoints = new HashMap<>();
    private final Map<String, Future<Map<String, Object>>> tasks = new HashMap<>();
    private final List<Path> files = new ArrayList<>();
    private final ExecutorService threads = Executors.newCachedThreadPool(Cell::daemon);
    private Source source;

    Cell(Map<String, Object> cell, Side side, Controller controller) {
        this.cell = cell;
        this.side = side;
        this.controller = controller;
    }

    private static Thread daemon(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true); // one that waits for a dead server must not keep the program alive
        return thread;
    }

    void run(Listener listener) throws InterruptedException {
        int number = 0;
        for (Object one : Json.list(cell.get("steps"))) {
            long start = System.nanoTime();
            Map<String, Object> facts = facts(Json.object(one));
            listener.step(number++, facts, (System.nanoTime() - start) / 1_000_000);
        }
    }

    private Map<String, Object> facts(Map<String, Object> step) throws InterruptedException {
        try {
            return act(step);
        } catch (Misuse | InterruptedException ours) {
            throw ours;
        } catch (Exception thrown) { // what a driver or a pool throws is to be observed
            return Map.of("error", Facts.exception(thrown));
        }
    }

    private Map<String, Object> act(Map<String, Object> step) throws Exception {
        String action = (String) step.get("do");
        switch (action) {
            case "open": return open(step);
            case "close": return close(step);
            case "sql": return Statements.sql(connection(step), text(step), step);
            case "texts": return Statements.texts(connection(step), Json.list(step.get("texts")), step);
            case "prepare": prepared.put(name(step), Statements.prepare(connection(step), text(step), step)); return Map.of();
            case "run": return Statements.run(known(prepared, step.get("of")), step);
            case "prepared": return preparedOnce(step);
            case "stream": return Statements.stream(connection(step), text(step), step);
            case "columns": return Statements.columns(connection(step), text(step), Boolean.TRUE.equals(step.get("unrun")));
            case "getters":
                return Statements.getters(connection(step), text(step), Json.list(step.get("getters")), Json.list(step.get("params")));
            case "updatable":
                return Statements.updatable(connection(step), text(step), (String) step.get("column"), (String) step.get("value"));
            case "set": return set(connection(step), (String) step.get("what"), step.get("value"));
            case "state": return state(connection(step));
            case "commit": connection(step).commit(); return Map.of();
            case "rollback": connection(step).rollback(); return Map.of();
            case "savepoint": savepoints.put(name(step), connection(step).setSavepoint(name(step))); return Map.of();
            case "rollback_to": connection(step).rollback(known(savepoints, step.get("of"))); return Map.of();
            case "release": connection(step).releaseSavepoint(known(savepoints, step.get("of"))); return Map.of();
            case "valid": return Map.of("valid", connection(step).isValid(2));
            case "identify": return identify(step);
            case "pool": return source().counts();
            case "pool_set": source().change((String) step.get("what"), (Long) step.get("value")); return Map.of();
            case "background": return background(step);
            case "join": return join(step);
            case "wait": Thread.sleep((Long) step.get("ms")); return Map.of();
            case "until": return until(step);
            case "ask": return ask(step);
            case "call": return call(connection(step), (String) step.get("method"), Json.list(step.get("args")));
            case "file": return file(step);
            default: throw new Misuse("unknown action " + action);
        }
    }

    private static String on(Map<String, Object> step) {
        return (String) step.getOrDefault("on", MAIN);
    }

    private static String name(Map<String, Object> step) {
        return (String) Objects.requireNonNull(step.get("as"), "a step has no name: " + step.get("do"));
    }

    private static <T> T known(Map<String, T> of, Object name) {
        T found = of.get(String.valueOf(name));
        if (found == null) {
            throw new NotThere(String.valueOf(name));
        }
        return found;
    }

    /** What the step needs was not made, as an earlier step failed: a fact of both sides or a difference. */
    static final class NotThere extends RuntimeException {
        private static final long serialVersionUID = 1L;

        NotThere(String name) {
            super("an earlier step did not make " + name);
        }
    }

    private Connection connection(Map<String, Object> step) {
        return known(connections, on(step));
    }

    private String text(Map<String, Object> step) {
        String text = (String) step.get("sql");
        for (Map.Entry<String, String> one : names.entrySet()) {
            text = text.replace("${" + one.getKey() + "}", one.getValue());
        }
        return text.replace("${database}", side.database());
    }

    private Source source() throws Exception {
        if (source == null) {
            Map<String, Object> options = Json.object(cell.get("pool_options"));
            String address = side.address(Boolean.TRUE.equals(cell.get("proxy")));
            source = Source.of((String) cell.get("pool"), side.driver(), side.url(cell, address), side.login(), options);
        }
        return source;
    }

    private Map<String, Object> open(Map<String, Object> step) throws Exception {
        long patience = step.get("within_ms") == null ? 0 : (Long) step.get("within_ms");
        long deadline = System.nanoTime() + patience * 1_000_000;
        while (true) {
            try {
                boolean plain = Boolean.TRUE.equals(step.get("plain"));
                Connection opened = plain ? side.plain((String) cell.get("url")) : source().open();
                connections.put(step.get("as") == null ? MAIN : name(step), opened);
                return Map.of();
            } catch (SQLException refused) {
                if (System.nanoTime() > deadline) { // a pool comes back from a restart by a clock of its own
                    throw refused;
                }
                Thread.sleep(200);
            }
        }
    }

    private Map<String, Object> close(Map<String, Object> step) throws SQLException {
        Connection open = connection(step);
        connections.remove(on(step)); // before closing: what refuses to close is not to be used again
        open.close();
        return Map.of();
    }

    private Map<String, Object> preparedOnce(Map<String, Object> step) throws SQLException {
        try (PreparedStatement statement = Statements.prepare(connection(step), text(step), step)) {
            return Statements.run(statement, step);
        }
    }

    private static Map<String, Object> set(Connection on, String what, Object value) throws SQLException {
        switch (what) {
            case "autocommit": on.setAutoCommit((Boolean) value); break;
            case "read_only": on.setReadOnly((Boolean) value); break;
            case "isolation": on.setTransactionIsolation(Source.level((String) value)); break;
            case "catalog": on.setCatalog((String) value); break;
            case "network_timeout": on.setNetworkTimeout(Runnable::run, ((Long) value).intValue()); break;
            default: throw new Misuse("unknown setting " + what);
        }
        return Map.of();
    }

    private static Map<String, Object> state(Connection on) throws SQLException {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("autocommit", on.getAutoCommit());
        facts.put("read_only", on.isReadOnly());
        facts.put("isolation", on.getTransactionIsolation());
        return facts;
    }

    /** Remember the server's id of a connection ({@code as}), or tell whether it is still that one ({@code same_as}). */
    private Map<String, Object> identify(Map<String, Object> step) throws SQLException {
        String id = first(connection(step), "SELECT CONNECTION_ID()");
        if (step.get("as") != null) {
            names.put("id:" + name(step), id);
            return Map.of();
        }
        return Map.of("same_server_connection", id.equals(known(names, "id:" + step.get("same_as"))));
    }

    private static String first(Connection on, String sql) throws SQLException {
        try (Statement statement = on.createStatement(); ResultSet rows = statement.executeQuery(sql)) {
            return rows.next() ? rows.getString(1) : null;
        }
    }

    private Map<String, Object> background(Map<String, Object> step) {
        Map<String, Object> inner = Json.object(step.get("step"));
        Callable<Map<String, Object>> work = () -> facts(inner);
        tasks.put(name(step), threads.submit(work));
        return Map.of();
    }

    private Map<String, Object> join(Map<String, Object> step) throws InterruptedException {
        try {
            return known(tasks, step.get("of")).get((Long) step.get("within_ms"), TimeUnit.MILLISECONDS);
        } catch (TimeoutException late) {
            return Map.of("ended", false);
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof Misuse misuse) {
                throw misuse;
            }
            return Map.of("error", Facts.exception(failed.getCause()));
        }
    }

    /** Ask a query again and again until it gives a value; whether it came in time is the fact. */
    private Map<String, Object> until(Map<String, Object> step) throws Exception {
        long deadline = System.nanoTime() + (Long) step.get("within_ms") * 1_000_000;
        String wanted = String.valueOf(step.get("equals"));
        while (true) {
            boolean reached = wanted.equals(first(connection(step), text(step)));
            if (reached || System.nanoTime() > deadline) {
                return Map.of("reached", reached);
            }
            Thread.sleep(50);
        }
    }

    private Map<String, Object> ask(Map<String, Object> step) throws InterruptedException {
        Map<String, Object> what = new LinkedHashMap<>(step);
        what.put("side", side.name());
        return controller.ask(what);
    }

    /** Call a method of the driver's own connection class, by name. */
    private static Map<String, Object> call(Connection on, String method, List<Object> args) throws Exception {
        Connection own = on.unwrap(Connection.class);
        for (String wrapped : new String[] {"com.mysql.cj.jdbc.JdbcConnection", "com.mysql.jdbc.MySQLConnection", "org.mariadb.jdbc.Connection", "org.mariadb.jdbc.MariaDbConnection"}) {
            try {
                Class<?> type = Class.forName(wrapped);
                own = on.isWrapperFor(type) ? (Connection) on.unwrap(type) : own;
            } catch (ClassNotFoundException otherDriver) {
                continue;
            }
        }
        for (Method one : own.getClass().getMethods()) {
            if (one.getName().equals(method) && one.getParameterCount() == args.size()) {
                try {
                    return Map.of("returned", Facts.value(one.invoke(own, args.toArray())));
                } catch (InvocationTargetException thrown) {
                    throw thrown.getCause() instanceof Exception cause ? cause : thrown;
                }
            }
        }
        return Map.of("no_such_method", method);
    }

    private Map<String, Object> file(Map<String, Object> step) throws IOException {
        Path path = Files.createTempFile("clients-", ".txt");
        files.add(path);
        Files.writeString(path, (String) step.get("text"));
        names.put("file:" + name(step), path.toString());
        return Map.of();
    }

    @Override
    public void close() throws IOException {
        threads.shutdownNow();
        for (Connection one : connections.values()) {
            Side.quietly(one);
        }
        if (source != null) {
            source.close();
        }
        for (Path path : files) {
            Files.deleteIfExists(path);
        }
    }
}
