// A Flink table sink that keeps the newest row per key in memory and writes it as CSV when the input ends.
// Flink has no sink of its own that takes updates and needs no server; this one costs it next to nothing.

import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.types.RowKind;

public class CollectedSinkFactory implements DynamicTableSinkFactory {
    private static final ConfigOption<String> PATH = ConfigOptions.key("path").stringType().noDefaultValue();

    @Override
    public String factoryIdentifier() {
        return "collected";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of(PATH);
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return Set.of();
    }

    @Override
    public DynamicTableSink createDynamicTableSink(Context context) {
        FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
        helper.validate();
        return new Collected(helper.getOptions().get(PATH));
    }

    private record Collected(String path) implements DynamicTableSink {
        @Override
        public ChangelogMode getChangelogMode(ChangelogMode requested) {
            return ChangelogMode.upsert();
        }

        @Override
        public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
            return SinkV2Provider.of(new Table(path));
        }

        @Override
        public DynamicTableSink copy() {
            return this;
        }

        @Override
        public String asSummaryString() {
            return "collected";
        }
    }

    private static class Table implements Sink<RowData> {
        private final String path;

        Table(String path) {
            this.path = path;
        }

        @Override
        public SinkWriter<RowData> createWriter(WriterInitContext context) {
            return new Rows(path, context.getTaskInfo().getIndexOfThisSubtask());
        }
    }

    private static class Rows implements SinkWriter<RowData> {
        private final Path file;
        private final Map<Long, Row> rows = new HashMap<>();

        Rows(String path, int task) {
            file = Path.of(path, "part-" + task + ".csv");
        }

        @Override
        public void write(RowData row, Context context) {
            if (row.getRowKind() == RowKind.DELETE) {
                rows.remove(row.getLong(0));
            } else {
                rows.put(row.getLong(0), new Row(row.getLong(1), row.getDouble(2)));
            }
        }

        @Override
        public void flush(boolean endOfInput) throws IOException {
            if (!endOfInput) {
                return;
            }
            Files.createDirectories(file.getParent());
            try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(file))) {
                out.println("key,ms,value");
                for (Map.Entry<Long, Row> each : rows.entrySet()) {
                    out.println(each.getKey() + "," + each.getValue().ms + "," + each.getValue().value);
                }
            }
        }

        @Override
        public void close() {}
    }

    private record Row(long ms, double value) {}
}
