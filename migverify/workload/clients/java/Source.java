import com.alibaba.druid.pool.DruidDataSource;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.sql.Connection;
import java.sql.Driver;
import java.sql.SQLException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;

/** Where a scenario's connections come from: a driver, or a pool over it. One per scenario, side and pool. */
abstract class Source implements AutoCloseable {
    abstract Connection open() throws SQLException;

    /** Connections in use, as the pool counts them; empty without a pool. (Idle ones come and go by the pool's own clock.) */
    Map<String, Object> counts() {
        return Map.of();
    }

    /** A setting that is changed while the pool runs. */
    void change(String what, long value) {
        throw new IllegalArgumentException("no pool, or the pool has no setting " + what);
    }

    @Override
    public void close() {}

    static Source of(String pool, String driver, String url, Properties login, Map<String, Object> options)
            throws Exception {
        switch (pool) {
            case "none": return new Plain(driver, url, login);
            case "hikari": return new Hikari(driver, url, login, options);
            case "druid": return new Druid(driver, url, login, options);
            default: throw new IllegalArgumentException("unknown pool " + pool);
        }
    }

    static Map<String, Object> counted(int active) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("active", active);
        return facts;
    }

    private static final class Plain extends Source {
        private final Driver driver;
        private final String url;
        private final Properties login;

        Plain(String driver, String url, Properties login) throws Exception {
            this.driver = (Driver) Class.forName(driver).getDeclaredConstructor().newInstance();
            this.url = url;
            this.login = login;
        }

        @Override
        Connection open() throws SQLException {
            Connection opened = driver.connect(url, login);
            if (opened == null) {
                throw new SQLException("the driver does not know this URL");
            }
            return opened;
        }
    }

    private static final class Hikari extends Source {
        private final HikariDataSource pool;

        Hikari(String driver, String url, Properties login, Map<String, Object> options) {
            HikariConfig config = new HikariConfig();
            config.setDriverClassName(driver);
            config.setJdbcUrl(url);
            config.setUsername(login.getProperty("user"));
            config.setPassword(login.getProperty("password"));
            config.setMaximumPoolSize(2);
            config.setMinimumIdle(1);
            config.setConnectionTimeout(2000);
            config.setValidationTimeout(1000);
            config.setReadOnly(Boolean.TRUE.equals(options.get("read_only")));
            config.setAutoCommit(!Boolean.FALSE.equals(options.get("autocommit")));
            if (options.get("isolation") != null) {
                config.setTransactionIsolation((String) options.get("isolation"));
            }
            if (Boolean.TRUE.equals(options.get("keep_on_1105"))) {
                config.setExceptionOverrideClassName(KeepOn1105.class.getName());
            }
            pool = new HikariDataSource(config);
        }

        @Override
        Connection open() throws SQLException {
            return pool.getConnection();
        }

        @Override
        Map<String, Object> counts() {
            return counted(pool.getHikariPoolMXBean().getActiveConnections());
        }

        @Override
        void change(String what, long value) {
            if (!what.equals("max_lifetime")) {
                super.change(what, value);
            }
            pool.getHikariConfigMXBean().setMaxLifetime(value); // below 30 s only here: the constructor refuses it
            pool.getHikariPoolMXBean().softEvictConnections();
        }

        @Override
        public void close() {
            pool.close();
        }
    }

    private static final class Druid extends Source {
        private final DruidDataSource pool = new DruidDataSource();

        Druid(String driver, String url, Properties login, Map<String, Object> options) {
            pool.setDriverClassName(driver);
            pool.setUrl(url);
            pool.setUsername(login.getProperty("user"));
            pool.setPassword(login.getProperty("password"));
            pool.setInitialSize(0);
            pool.setMinIdle(0);
            pool.setMaxActive(2);
            pool.setMaxWait(2000);
            pool.setBreakAfterAcquireFailure(false);
            pool.setConnectionErrorRetryAttempts(0);
            pool.setTimeBetweenConnectErrorMillis(300);
            pool.setDefaultAutoCommit(!Boolean.FALSE.equals(options.get("autocommit")));
            if (Boolean.TRUE.equals(options.get("read_only"))) {
                pool.setDefaultReadOnly(true);
            }
            if (options.get("isolation") != null) {
                pool.setDefaultTransactionIsolation(level((String) options.get("isolation")));
            }
        }

        @Override
        Connection open() throws SQLException {
            return pool.getConnection();
        }

        @Override
        Map<String, Object> counts() {
            return counted(pool.getActiveCount());
        }

        @Override
        void change(String what, long value) {
            if (!what.equals("max_lifetime")) {
                super.change(what, value);
            }
            pool.setPhyTimeoutMillis(value);
        }

        @Override
        public void close() {
            pool.close();
        }
    }

    static int level(String name) {
        switch (name) {
            case "TRANSACTION_READ_UNCOMMITTED": return Connection.TRANSACTION_READ_UNCOMMITTED;
            case "TRANSACTION_READ_COMMITTED": return Connection.TRANSACTION_READ_COMMITTED;
            case "TRANSACTION_REPEATABLE_READ": return Connection.TRANSACTION_REPEATABLE_READ;
            case "TRANSACTION_SERIALIZABLE": return Connection.TRANSACTION_SERIALIZABLE;
            default: throw new IllegalArgumentException("unknown isolation " + name);
        }
    }
}
