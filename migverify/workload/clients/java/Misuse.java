/** The scenario asks for something that this program does not know: an error of ours, never a fact about a server. */
final class Misuse extends RuntimeException {
    private static final long serialVersionUID = 1L;

    Misuse(String message) {
        super(message);
    }
}
