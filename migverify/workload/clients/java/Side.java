import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/** One endpoint and the driver that reaches it. The password is known here only, and is in no URL. */
final class Side {
    private final String name;
    private final String driver;
    private final String setupUrl;
    private final Map<String, Object> at;
    private final String password;

    Side(String name, String driver, String setupUrl, Map<String, Object> at, String password) {
        this.name = name;
        this.driver = driver;
        this.setupUrl = setupUrl;
        this.at = at;
        this.password = password;
    }

    String name() {
        return name;
    }

    String driver() {
        return driver;
    }

    String database() {
        return (String) at.get("database");
    }

    String address(boolean proxy) {
        return (String) at.get(proxy ? "proxy" : "address");
    }

    String url(Map<String, Object> cell, String address) {
        return url((String) cell.get("url"), address);
    }

    private String url(String template, String address) {
        return template.replace("{tls}", (String) at.get("tls_words")).replace("{address}", address).replace("{database}", database());
    }

    Properties login() {
        Properties login = new Properties();
        login.setProperty("user", (String) at.get("user"));
        login.setProperty("password", password);
        return login;
    }

    /** A connection apart from the scenario's pool and proxy, with the scenario's own options. */
    Connection plain(String template) throws Exception {
        return Source.of("none", driver, url(template, address(false)), login(), Map.of()).open();
    }

    /** Run setup or clean-up; the first refusal is thrown with the statement that met it. */
    void prepare(List<Object> statements) throws Exception {
        if (statements.isEmpty()) {
            return;
        }
        try (Connection connection = plain(setupUrl); Statement statement = connection.createStatement()) {
            for (Object sql : statements) {
                try {
                    statement.execute(sql.toString());
                } catch (SQLException refused) {
                    throw new SQLException(sql + ": " + refused.getMessage(), refused.getSQLState(), refused.getErrorCode());
                }
            }
        }
    }

    /** Close what may be broken already; what that says is no fact of the scenario. */
    static void quietly(Connection connection) {
        try {
            connection.close();
        } catch (SQLException | RuntimeException broken) {
            System.err.println("closing: " + broken.getClass().getName());
        }
    }
}
