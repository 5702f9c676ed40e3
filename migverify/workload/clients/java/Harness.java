import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Runs scenarios with a real JDBC driver and real pools, and writes what a client sees as JSON lines.
 *
 * <p>Argument: a file with {@code driver}, {@code setup_url}, {@code sides} and {@code cells}. Standard input: first a line
 * {@code {"passwords": {side: text}}}, then {@code {"run": n, "side": s}} for each cell, {@code {"reply": n, ...}} as answers to
 * {@code {"ask": n, ...}}, and the end. Each side has a thread of its own.
 */
public final class Harness {
    private final PrintStream out;
    private final Map<String, Side> sides = new HashMap<>();
    private final Map<String, BlockingQueue<Long>> work = new HashMap<>();
    private final List<Object> cells;
    private final Map<Long, BlockingQueue<Map<String, Object>>> replies = new ConcurrentHashMap<>();
    private final AtomicLong asked = new AtomicLong();

    private Harness(PrintStream out, Map<String, Object> file, Map<String, Object> passwords) {
        this.out = out;
        this.cells = Json.list(file.get("cells"));
        for (Map.Entry<String, Object> one : Json.object(file.get("sides")).entrySet()) {
            String name = one.getKey();
            String password = (String) passwords.get(name);
            sides.put(name, new Side(name, (String) file.get("driver"), (String) file.get("setup_url"), Json.object(one.getValue()), password));
            work.put(name, new LinkedBlockingQueue<>());
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.US_ASCII);
        System.setOut(System.err); // pools and drivers may print; standard output holds facts only
        Map<String, Object> file = Json.object(Json.read(Files.readString(Path.of(args[0]))));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String first = in.readLine();
        if (first == null) {
            throw new IllegalArgumentException("standard input holds no line {\"passwords\": {...}}");
        }
        Harness harness = new Harness(out, file, Json.object(Json.object(Json.read(first)).get("passwords")));
        harness.emit(Map.of("ready", true, "java", System.getProperty("java.version")));
        harness.serve(in);
        System.exit(0); // pools leave threads behind
    }

    private void serve(BufferedReader in) throws IOException, InterruptedException {
        Map<String, Thread> threads = new HashMap<>();
        for (String side : sides.keySet()) {
            threads.put(side, new Thread(() -> obey(side)));
            threads.get(side).start();
        }
        String line;
        while ((line = in.readLine()) != null) {
            Map<String, Object> command = Json.object(Json.read(line));
            if (command.containsKey("reply")) {
                replies.get((Long) command.get("reply")).add(command);
            } else {
                work.get((String) command.get("side")).add((Long) command.get("run"));
            }
        }
        for (String side : sides.keySet()) {
            work.get(side).add(-1L);
            threads.get(side).join();
        }
    }

    private void obey(String side) {
        try {
            for (long number = work.get(side).take(); number >= 0; number = work.get(side).take()) {
                emit(end(number, side, run(number, side)));
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    /** Run one cell; returns why it could not be run to its end, or null. */
    private String run(long number, String sideName) throws InterruptedException {
        Map<String, Object> cell = Json.object(cells.get((int) number));
        Side side = sides.get(sideName);
        try {
            side.prepare(Json.list(cell.get("setup")));
            try (Cell running = new Cell(cell, side, this::ask)) {
                running.run((step, facts, millis) -> emit(step(number, sideName, step, facts, millis)));
            }
            side.prepare(Json.list(cell.get("cleanup")));
            return null;
        } catch (InterruptedException stopped) {
            throw stopped;
        } catch (Misuse misuse) {
            return "scenario: " + misuse.getMessage();
        } catch (Exception thrown) {
            return thrown.getClass().getName() + ": " + thrown.getMessage();
        }
    }

    private Map<String, Object> ask(Map<String, Object> what) throws InterruptedException {
        long number = asked.incrementAndGet();
        BlockingQueue<Map<String, Object>> answer = new LinkedBlockingQueue<>();
        replies.put(number, answer);
        Map<String, Object> line = new LinkedHashMap<>(what);
        line.put("ask", number);
        emit(line);
        Map<String, Object> reply = new LinkedHashMap<>(answer.take());
        replies.remove(number);
        reply.remove("reply");
        if (reply.containsKey("refused")) {
            throw new Misuse(String.valueOf(reply.get("refused")));
        }
        return reply;
    }

    private static Map<String, Object> step(long cell, String side, int step, Map<String, Object> facts, long millis) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("cell", cell);
        line.put("side", side);
        line.put("step", step);
        line.put("facts", facts);
        line.put("ms", millis);
        return line;
    }

    private static Map<String, Object> end(long cell, String side, String failure) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("cell", cell);
        line.put("side", side);
        line.put("end", true);
        line.put("failure", failure);
        return line;
    }

    private synchronized void emit(Map<String, Object> line) {
        out.println(Json.write(line));
    }
}
