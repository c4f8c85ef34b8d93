package riverrun.clients;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Runs the Java client's cases: {@code Main BOOTSTRAP SERVER [CASE...]}. Each case has its own thread and its own
 * limit, so that one that hangs shows where it stands and the others still run.
 */
public final class Main {
    private static final long CASE_LIMIT_MS = 120_000;

    private Main() {}

    /** Body of a case; any exception is its failure. */
    interface Body {
        void run(Bench bench) throws Exception;
    }

    /** The cases in the order in which they run. */
    static final class Cases {
        private final Map<String, Body> bodies = new LinkedHashMap<>();

        void add(String name, Body body) {
            if (bodies.put(name, body) != null) {
                throw new IllegalStateException("two cases are named " + name);
            }
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        Bench bench = new Bench(arguments[0], arguments[1]);
        Cases cases = new Cases();
        ProduceCases.addTo(cases);
        ConsumeCases.addTo(cases);
        GroupCases.addTo(cases);
        TopicAdminCases.addTo(cases);
        GroupAdminCases.addTo(cases);
        UnsupportedCases.addTo(cases);
        List<String> wanted = new ArrayList<>(List.of(arguments).subList(2, arguments.length));
        if (wanted.isEmpty()) {
            wanted.addAll(cases.bodies.keySet());
        }
        wanted.forEach(name -> System.out.println("@plan " + name));
        for (String name : wanted) {
            System.out.println("@begin " + name);
            System.out.println((passes(cases.bodies.get(name), bench) ? "@pass " : "@fail ") + name);
        }
        // Threads of a case that hung must not keep the program alive.
        System.exit(0);
    }

    private static boolean passes(Body body, Bench bench) throws InterruptedException {
        if (body == null) {
            System.out.println("there is no such case");
            return false;
        }
        boolean[] passed = {false};
        Thread thread = new Thread(() -> {
            try {
                body.run(bench);
                passed[0] = true;
            } catch (Throwable failure) {
                failure.printStackTrace(System.out);
            }
        });
        thread.setDaemon(true);
        thread.start();
        thread.join(CASE_LIMIT_MS);
        if (thread.isAlive()) {
            System.out.println("no end within " + CASE_LIMIT_MS + " ms; it stands at");
            List.of(thread.getStackTrace()).forEach(frame -> System.out.println("    at " + frame));
            thread.interrupt();
            return false;
        }
        return passed[0];
    }
}
