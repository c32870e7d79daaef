// A reimplementation of Pulsar's BitSetRecyclable and PositionAckSetUtil as a program that speaks the protocol of
// `brokerproof sut`. It needs only a JDK:
//
//     brokerproof sut ack_set -- java tests/programs/AckSets.java
//
// To test your own class, replace the section "the implementation under test".

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

public final class AckSets {

    // ---- the protocol: a line of JSON in, a line of JSON out ----

    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        AckSets sets = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<?, ?> request = (Map<?, ?>) new Json(line).value();
            var reply = new LinkedHashMap<String, Object>();
            if (request.containsKey("brokerproof")) { // the reply is the hello; settings: the config fields that we obey
                reply.put("brokerproof", 1L);
                reply.put("name", "ack sets in Java");
                reply.put("settings", List.of("batch_size"));
            } else {
                if (request.get("config") instanceof Map<?, ?> config) { // a reset
                    sets = new AckSets(((Long) config.get("batch_size")).intValue());
                }
                var outcomes = new ArrayList<Object>();
                for (Object call : (List<?>) request.get("calls")) {
                    outcomes.add(sets.outcome((List<?>) call));
                }
                reply.put("id", request.get("id"));
                reply.put("outcomes", outcomes);
                reply.put("observed", sets.observed());
            }
            out.print(Json.text(reply) + "\n");
            out.flush();
        }
    }

    /** A call that is not allowed; `kind` is compared, nothing else. */
    private static final class Refused extends RuntimeException {
        Refused(String kind) {
            super(kind);
        }
    }

    private Object outcome(List<?> call) {
        try {
            return take(call);
        } catch (Refused refused) {
            return Map.of("refused", refused.getMessage());
        }
    }

    // ---- the implementation under test ----

    private final int batchSize; // 0: unknown
    private final Map<Long, BitSet> batches = new TreeMap<>();
    private long nextBatch = 1;

    private AckSets(int batchSize) {
        this.batchSize = batchSize;
    }

    private Object take(List<?> call) {
        switch ((String) call.get(0)) {
            case "open_batch":
                batches.put(nextBatch, new BitSet());
                return nextBatch++;
            case "recycle":
                open(call);
                batches.remove(call.get(1));
                return null;
            case "set_range":
                range(call).set(number(call, 2), number(call, 3));
                return null;
            case "clear_range":
                range(call).clear(number(call, 2), number(call, 3));
                return null;
            case "flip_range":
                range(call).flip(number(call, 2), number(call, 3));
                return null;
            case "set_index":
                index(call).set(number(call, 2));
                return null;
            case "clear_index":
                index(call).clear(number(call, 2));
                return null;
            case "get_index":
                return index(call).get(number(call, 2));
            case "and_with":
                BitSet words = bits(call.get(2)), open = open(call);
                if (batchSize > 0 && words.length() > batchSize) {
                    throw new Refused("illegal_argument");
                }
                open.and(words);
                return null;
            case "next_set_bit":
                return (long) open(call).nextSetBit(number(call, 2));
            case "next_clear_bit":
                return (long) open(call).nextClearBit(number(call, 2));
            case "and_ack_set":
                return words(and(call.get(1), call.get(2)));
            case "and_position_ack_set":
                return andPosition((Map<?, ?>) call.get(1), (Map<?, ?>) call.get(2));
            case "is_ack_set_empty":
                return bits(call.get(1)).isEmpty();
            case "is_ack_set_overlap":
                return overlap(call.get(1), call.get(2));
            case "compare_with_ack_set":
                return compare((Map<?, ?>) call.get(1), (Map<?, ?>) call.get(2));
            default:
                throw new IllegalArgumentException("no action " + call.get(0));
        }
    }

    private List<Object> observed() {
        var seen = new ArrayList<Object>();
        for (BitSet bits : batches.values()) {
            seen.add(Map.of("words", words(bits), "cardinality", (long) bits.cardinality(),
                    "length", (long) bits.length(), "empty", bits.isEmpty()));
        }
        return seen;
    }

    private BitSet open(List<?> call) {
        BitSet bits = batches.get(call.get(1));
        if (bits == null) {
            throw new Refused("not_open");
        }
        return bits;
    }

    private BitSet range(List<?> call) {
        BitSet bits = open(call);
        if (number(call, 2) > number(call, 3) || batchSize > 0 && number(call, 3) > batchSize) {
            throw new Refused("illegal_argument");
        }
        return bits;
    }

    private BitSet index(List<?> call) {
        BitSet bits = open(call);
        if (batchSize > 0 && number(call, 2) >= batchSize) {
            throw new Refused("illegal_argument");
        }
        return bits;
    }

    private boolean overlap(Object current, Object other) {
        if (current == null || other == null) {
            return false;
        }
        int size = batchSize > 0 ? batchSize : 64 * Math.max(((List<?>) current).size(), ((List<?>) other).size());
        BitSet either = bits(current); // a clear bit: acknowledged
        either.or(bits(other));
        return either.nextClearBit(0) < size;
    }

    private static Object andPosition(Map<?, ?> current, Map<?, ?> other) {
        if (current == null) {
            return null;
        }
        var updated = new LinkedHashMap<String, Object>();
        updated.put("current_ack_set", current.get("ack_set"));
        if (other != null) {
            if (!(Boolean) current.get("carries_ack_set") || !(Boolean) other.get("carries_ack_set")) {
                throw new Refused("illegal_state");
            }
            if (current.get("ack_set") == null || other.get("ack_set") == null) {
                throw new Refused("null_pointer");
            }
            updated.put("current_ack_set", words(and(current.get("ack_set"), other.get("ack_set"))));
        }
        return updated;
    }

    private static Object compare(Map<?, ?> current, Map<?, ?> other) {
        if (current == null || other == null) {
            throw new Refused("illegal_argument");
        }
        for (String part : List.of("ledger", "entry")) {
            int order = Long.compare((Long) current.get(part), (Long) other.get(part));
            if (order != 0) {
                return (long) order;
            }
        }
        long ours = bits(current.get("ack_set")).nextSetBit(0), theirs = bits(other.get("ack_set")).nextSetBit(0);
        return ours >= 0 && theirs >= 0 ? ours - theirs : theirs - ours; // -1, a whole entry, is the largest
    }

    private static BitSet and(Object first, Object second) {
        BitSet both = bits(first);
        both.and(bits(second));
        return both;
    }

    private static int number(List<?> call, int at) {
        return ((Long) call.get(at)).intValue();
    }

    private static BitSet bits(Object words) {
        return words == null ? new BitSet()
                : BitSet.valueOf(((List<?>) words).stream().mapToLong(each -> (Long) each).toArray());
    }

    private static List<Object> words(BitSet bits) {
        return new ArrayList<>(Arrays.stream(bits.toLongArray()).boxed().toList());
    }

    // ---- JSON: as much as the protocol needs ----

    private static final class Json {
        private final String text;
        private int at;

        Json(String text) {
            this.text = text;
        }

        Object value() {
            char first = next();
            switch (first) {
                case '{':
                    var object = new LinkedHashMap<String, Object>();
                    while (!ends('}')) {
                        next();
                        String key = string();
                        next(); // the colon
                        object.put(key, value());
                    }
                    return object;
                case '[':
                    var list = new ArrayList<Object>();
                    while (!ends(']')) {
                        list.add(value());
                    }
                    return list;
                case '"':
                    return string();
                default:
                    int start = at - 1;
                    while (at < text.length() && ",]} ".indexOf(text.charAt(at)) < 0) {
                        at++;
                    }
                    String word = text.substring(start, at);
                    return switch (word) {
                        case "null" -> null;
                        case "true" -> true;
                        case "false" -> false;
                        default -> Long.valueOf(word);
                    };
            }
        }

        /** The next character that is no space. */
        private char next() {
            while (text.charAt(at) == ' ') {
                at++;
            }
            return text.charAt(at++);
        }

        /** Whether a list or object ends here; passes over a comma. */
        private boolean ends(char end) {
            char here = next();
            if (here != end && here != ',') {
                at--;
            }
            return here == end;
        }

        private String string() {
            var string = new StringBuilder();
            for (char each = text.charAt(at++); each != '"'; each = text.charAt(at++)) {
                if (each == '\\') {
                    each = text.charAt(at++);
                    if (each == 'u') {
                        each = (char) Integer.parseInt(text.substring(at, at += 4), 16);
                    }
                }
                string.append(each);
            }
            return string.toString();
        }

        static String text(Object value) {
            if (value instanceof Map<?, ?> object) {
                var parts = new ArrayList<String>();
                object.forEach((key, each) -> parts.add("\"" + key + "\":" + text(each)));
                return "{" + String.join(",", parts) + "}";
            }
            if (value instanceof List<?> list) {
                return "[" + String.join(",", list.stream().map(Json::text).toList()) + "]";
            }
            return value instanceof String string ? "\"" + string + "\"" : String.valueOf(value);
        }
    }
}
