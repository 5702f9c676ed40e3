import com.zaxxer.hikari.SQLExceptionOverride;
import java.sql.SQLException;

/** The remedy for HikariCP's eviction: TiDB's generic error 1105, and its refusals with SQLSTATE 0A000, close nothing. */
public final class KeepOn1105 implements SQLExceptionOverride {
    @java.lang.Override
    public Override adjudicate(SQLException thrown) {
        boolean healthy = thrown.getErrorCode() == 1105 || "0A000".equals(thrown.getSQLState());
        return healthy ? Override.DO_NOT_EVICT : Override.CONTINUE_EVICT;
    }
}
