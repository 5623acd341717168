// A Flink table sink that writes CSV: of a table with a key the newest row per key, kept in memory until the input ends; of a table without one
// every row as it comes. Flink has no sink of its own that takes updates and needs no server; this one costs it next to nothing.

import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
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
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.types.RowKind;

public class CollectedSinkFactory implements DynamicTableSinkFactory {
    private static final ConfigOption<String> PATH = ConfigOptions.key("path").stringType().noDefaultValue();
    // The column of which the newest row per value is kept, where rows come that replace each other without Flink knowing.
    private static final ConfigOption<String> NEWEST_PER = ConfigOptions.key("newest-per").stringType().noDefaultValue();

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
        return Set.of(NEWEST_PER);
    }

    @Override
    public DynamicTableSink createDynamicTableSink(Context context) {
        FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
        helper.validate();
        List<String> names = context.getCatalogTable().getResolvedSchema().getColumnNames();
        int[] primary = context.getPrimaryKeyIndexes();
        return new Collected(
                helper.getOptions().get(PATH),
                helper.getOptions().getOptional(NEWEST_PER).map(name -> new int[] {names.indexOf(name)}).orElse(primary),
                primary.length > 0,
                names,
                context.getPhysicalRowDataType().getLogicalType().getChildren());
    }

    private record Collected(String path, int[] key, boolean updates, List<String> names, List<LogicalType> types)
            implements DynamicTableSink {
        @Override
        public ChangelogMode getChangelogMode(ChangelogMode requested) {
            return updates ? ChangelogMode.upsert() : ChangelogMode.insertOnly();
        }

        @Override
        public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
            return SinkV2Provider.of(new Table(path, key, names, types));
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
        private final int[] key;
        private final ArrayList<String> names;
        private final ArrayList<LogicalType> types;

        Table(String path, int[] key, List<String> names, List<LogicalType> types) {
            this.path = path;
            this.key = key;
            this.names = new ArrayList<>(names);
            this.types = new ArrayList<>(types);
        }

        @Override
        public SinkWriter<RowData> createWriter(WriterInitContext context) throws IOException {
            Path file = Path.of(path, "part-" + context.getTaskInfo().getIndexOfThisSubtask() + ".csv");
            return new Rows(file, key, names, types);
        }
    }

    private static class Rows implements SinkWriter<RowData> {
        private final PrintWriter out;
        private final int[] key;
        private final RowData.FieldGetter[] fields;
        private final Map<Object, Object[]> newest = new HashMap<>();
        private final StringBuilder line = new StringBuilder();

        Rows(Path file, int[] key, List<String> names, List<LogicalType> types) throws IOException {
            Files.createDirectories(file.getParent());
            this.out = new PrintWriter(Files.newBufferedWriter(file));
            this.out.println(String.join(",", names));
            this.key = key;
            this.fields = new RowData.FieldGetter[types.size()];
            for (int place = 0; place < fields.length; place++) {
                fields[place] = RowData.createFieldGetter(types.get(place), place);
            }
        }

        @Override
        public void write(RowData row, Context context) {
            Object[] values = new Object[fields.length];
            for (int place = 0; place < fields.length; place++) {
                Object value = fields[place].getFieldOrNull(row);
                values[place] = value instanceof TimestampData time ? (Object) time.getMillisecond() : value;
            }
            if (key.length == 0) {
                print(values);
            } else if (row.getRowKind() == RowKind.DELETE) {
                newest.remove(keyOf(values));
            } else {
                newest.put(keyOf(values), values);
            }
        }

        private Object keyOf(Object[] values) {
            if (key.length == 1) {
                return values[key[0]];
            }
            List<Object> found = new ArrayList<>(key.length);
            for (int place : key) {
                found.add(values[place]);
            }
            return found;
        }

        private void print(Object[] values) {
            line.setLength(0);
            for (Object value : values) {
                line.append(line.length() == 0 ? "" : ",").append(value);
            }
            out.println(line);
        }

        @Override
        public void flush(boolean endOfInput) {
            if (endOfInput) {
                newest.values().forEach(this::print);
            }
        }

        @Override
        public void close() throws IOException {
            out.close();
            if (out.checkError()) {
                throw new IOException("the result could not be written");
            }
        }
    }
}
