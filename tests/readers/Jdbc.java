import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.sql.*;
import java.util.*;

/** What a BI tool does over JDBC: the URL, then a line for each query in; a line for each value out, and an empty one after each row. */
class Jdbc {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        try (Connection connection = DriverManager.getConnection(arguments[0]);
             Statement statement = connection.createStatement();
             Scanner queries = new Scanner(System.in, StandardCharsets.UTF_8)) {
            while (queries.hasNextLine()) {
                try (ResultSet rows = statement.executeQuery(queries.nextLine())) {
                    ResultSetMetaData columns = rows.getMetaData();
                    while (rows.next()) {
                        for (int at = 1; at <= columns.getColumnCount(); at++) {
                            byte[] value = valueOf(rows, at, columns.getColumnType(at));
                            out.println(columns.getColumnLabel(at) + "=" + (value == null ? "null" : HexFormat.of().formatHex(value)));
                        }
                        out.println();
                    }
                    out.println("end");
                } catch (SQLException error) {
                    out.println("refused=" + HexFormat.of().formatHex(error.getMessage().getBytes(StandardCharsets.UTF_8)));
                }
            }
        }
    }

    static byte[] valueOf(ResultSet rows, int at, int type) throws Exception {
        if (type == Types.VARBINARY) {
            return rows.getBytes(at);
        }
        if (type == Types.BINARY) {
            java.io.InputStream stream = rows.getBinaryStream(at);
            return stream == null ? null : stream.readAllBytes();
        }
        String text = rows.getString(at);
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }
}
