// Glue of the catalog that a py4j proxy cannot be or do. Compiled on the driver by Janino, which has no generics.

import java.lang.invoke.MethodHandles;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.Function;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.connector.expressions.GeneralScalarExpression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.TableScan;
import org.apache.spark.sql.types.StructType;

public final class LakedexBridge {

  public Object wrap(Object python, String interfaces, String answered, Function thrown) throws Exception {
    Class[] types = classes(interfaces);
    Set names = new HashSet(Arrays.asList((Object[]) answered.split(" ")));
    InvocationHandler handler = new Handler(Proxy.getInvocationHandler(python), names, thrown);
    return Proxy.newProxyInstance(types[0].getClassLoader(), types, handler);
  }

  public String abstractMethods(String interfaces) throws Exception {
    StringBuilder found = new StringBuilder();
    Class[] types = classes(interfaces);
    for (int i = 0; i < types.length; i++) {
      Method[] methods = types[i].getMethods();
      for (int k = 0; k < methods.length; k++) {
        if (Modifier.isAbstract(methods[k].getModifiers())) found.append(methods[k].getName()).append(' ');
      }
    }
    return found.toString();
  }

  // The text of a class whose objects pass every call on: Spark makes one for each session, by the name in its settings,
  // and the catalog behind it is opened for that session.
  public String passingOn(String name, String interfaces) throws Exception {
    StringBuilder text = new StringBuilder();
    int dot = name.lastIndexOf('.');
    text.append("package ").append(name.substring(0, dot)).append(";\npublic final class ")
        .append(name.substring(dot + 1)).append(" implements ").append(interfaces.replace(" ", ", ")).append(" {\n")
        .append("  private static final java.util.Map openers = new java.util.concurrent.ConcurrentHashMap();\n")
        .append("  private Object behind;\n")
        .append("  public void add(String number, java.util.function.Function opener) { openers.put(number, opener); }\n")
        .append("  public void initialize(String name, org.apache.spark.sql.util.CaseInsensitiveStringMap options) {\n")
        .append("    java.util.function.Function opener =\n")
        .append("        (java.util.function.Function) openers.get(options.get(\"lakedex\"));\n")
        .append("    if (opener == null) throw new IllegalStateException(\"catalog \" + name\n")
        .append("        + \": its Python process is gone; call lakedex.register_catalog\");\n")
        .append("    behind = opener.apply(org.apache.spark.sql.SparkSession.active());\n  }\n");
    Map chosen = new LinkedHashMap();
    Class[] types = classes(interfaces);
    for (int i = 0; i < types.length; i++) {
      Method[] methods = types[i].getMethods();
      for (int k = 0; k < methods.length; k++) {
        String called = methods[k].getName() + Arrays.toString((Object[]) methods[k].getParameterTypes());
        Method before = (Method) chosen.get(called);
        boolean narrower = before == null || before.getReturnType().isAssignableFrom(methods[k].getReturnType());
        boolean passed = !Modifier.isStatic(methods[k].getModifiers()) && !methods[k].getName().equals("initialize");
        if (narrower && passed) chosen.put(called, methods[k]);
      }
    }
    for (Iterator each = chosen.values().iterator(); each.hasNext();) text.append(passingOn((Method) each.next()));
    return text.append("}\n").toString();
  }

  private static String passingOn(Method method) {
    StringBuilder taken = new StringBuilder();
    StringBuilder given = new StringBuilder();
    Class[] types = method.getParameterTypes();
    for (int i = 0; i < types.length; i++) {
      taken.append(i == 0 ? "" : ", ").append(types[i].getCanonicalName()).append(" p").append(i);
      given.append(i == 0 ? "p" : ", p").append(i);
    }
    StringBuilder thrown = new StringBuilder();
    Class[] exceptions = method.getExceptionTypes();
    for (int i = 0; i < exceptions.length; i++) {
      thrown.append(i == 0 ? " throws " : ", ").append(exceptions[i].getCanonicalName());
    }
    return "  public " + method.getReturnType().getCanonicalName() + " " + method.getName() + "(" + taken + ")" + thrown
        + " { " + (method.getReturnType() == void.class ? "" : "return ") + "(("
        + method.getDeclaringClass().getCanonicalName() + ") behind)." + method.getName() + "(" + given + "); }\n";
  }

  // Puts a class beside one of Spark's, where the class loader of every session finds it by its name.
  public Class define(Class neighbour, byte[] code) throws Exception {
    return MethodHandles.privateLookupIn(neighbour, MethodHandles.lookup()).defineClass(code);
  }

  public Object relation(SQLContext context, StructType schema, RDD rows, String description) {
    return new Rows(context, schema, rows, description);
  }

  public Object statuses(byte[] encoded, int count) throws Exception {
    java.io.DataInputStream stream = new java.io.DataInputStream(new java.io.ByteArrayInputStream(encoded));
    FileStatus[] read = new FileStatus[count];
    for (int i = 0; i < count; i++) {
      read[i] = new FileStatus();
      read[i].readFields(stream);
    }
    return read;
  }

  // Splits and packs parts of files as FileScan does whole files.
  public Object parts(SparkSession session, Batch batch, byte[] encoded) throws Exception {
    Map wanted = ranges(encoded);
    Map files = new LinkedHashMap();
    InputPartition[] whole = batch.planInputPartitions();
    for (int i = 0; i < whole.length; i++) {
      PartitionedFile[] split = ((FilePartition) whole[i]).files();
      for (int k = 0; k < split.length; k++) files.put(split[k].toPath().toString(), split[k]);
    }
    List parts = new ArrayList();
    Iterator entries = files.entrySet().iterator();
    while (entries.hasNext()) {
      Map.Entry entry = (Map.Entry) entries.next();
      PartitionedFile file = (PartitionedFile) entry.getValue();
      long[] numbers = (long[]) wanted.get(entry.getKey());
      if (numbers == null) numbers = new long[] {0L, file.fileSize()};
      for (int i = 0; i < numbers.length; i += 2) parts.add(part(file, numbers[i], numbers[i + 1]));
    }
    FileStatus[] sizes = new FileStatus[parts.size()];
    for (int i = 0; i < sizes.length; i++) {
      PartitionedFile file = (PartitionedFile) parts.get(i);
      sizes[i] = new FileStatus(file.length(), false, 1, 1L, 0L, file.toPath());
    }
    scala.collection.immutable.List directories = scala.collection.immutable.List$.MODULE$.empty();
    directories = directories.$colon$colon(PartitionDirectory.apply(InternalRow.empty(), sizes));
    long most = FilePartition.maxSplitBytes(session, directories);
    PartitionedFile[] split = split(parts, most);
    Arrays.sort(split, new LongestFirst());
    scala.collection.Seq packed = FilePartition.getFilePartitions(session, list(split, 0), most);
    InputPartition[] partitions = new InputPartition[packed.size()];
    for (int i = 0; i < partitions.length; i++) partitions[i] = (InputPartition) packed.apply(i);
    return partitions;
  }

  private static Map ranges(byte[] encoded) throws Exception {
    java.io.DataInputStream stream = new java.io.DataInputStream(new java.io.ByteArrayInputStream(encoded));
    Map found = new HashMap();
    int files = stream.readInt();
    for (int i = 0; i < files; i++) {
      byte[] name = new byte[stream.readInt()];
      stream.readFully(name);
      long[] numbers = new long[stream.readInt()];
      for (int k = 0; k < numbers.length; k++) numbers[k] = stream.readLong();
      found.put(new Path(new String(name, "UTF-8")).toString(), numbers);
    }
    return found;
  }

  private static PartitionedFile[] split(List parts, long most) {
    List found = new ArrayList();
    for (int i = 0; i < parts.size(); i++) {
      PartitionedFile file = (PartitionedFile) parts.get(i);
      for (long done = 0; done < file.length(); done += most) {
        found.add(part(file, file.start() + done, Math.min(most, file.length() - done)));
      }
    }
    return (PartitionedFile[]) found.toArray(new PartitionedFile[0]);
  }

  private static PartitionedFile part(PartitionedFile file, long start, long length) {
    return new PartitionedFile(file.partitionValues(), file.filePath(), start, length, file.locations(),
        file.modificationTime(), file.fileSize(), file.otherConstantMetadataColumnValues());
  }

  public Object statistics(Statistics whole, double share) {
    return new Share(whole, share);
  }

  // A condition of DataSource V2 as Catalyst has it: its values come over as they are, and no parser reads them. Null
  // where it has a part that is not listed here.
  public Expression catalyst(org.apache.spark.sql.connector.expressions.Expression given) throws Exception {
    if (given instanceof NamedReference) {
      return new UnresolvedAttribute(list(((NamedReference) given).fieldNames(), 0));
    }
    if (given instanceof org.apache.spark.sql.connector.expressions.Literal) {
      org.apache.spark.sql.connector.expressions.Literal literal =
          (org.apache.spark.sql.connector.expressions.Literal) given;
      return new Literal(literal.value(), literal.dataType());
    }
    if (given instanceof org.apache.spark.sql.connector.expressions.Cast) {
      org.apache.spark.sql.connector.expressions.Cast cast = (org.apache.spark.sql.connector.expressions.Cast) given;
      Expression inner = catalyst(cast.expression());
      return inner == null ? null : new Cast(inner, cast.dataType(), scala.Option.empty());
    }
    if (!(given instanceof GeneralScalarExpression)) return null;
    Object[] parts = new Object[given.children().length];
    for (int i = 0; i < parts.length; i++) {
      parts[i] = catalyst(given.children()[i]);
      if (parts[i] == null) return null;
    }
    String name = ((GeneralScalarExpression) given).name();
    if (name.equals("BOOLEAN_EXPRESSION")) return (Expression) parts[0];
    if (name.equals("COALESCE")) return new Coalesce(list(parts, 0));
    if (name.equals("IN")) return new In((Expression) parts[0], list(parts, 1));
    if (name.equals("<>")) return made("Not", new Object[] {made("EqualTo", parts)});
    String kind = (String) KINDS.get(name + "/" + parts.length);
    return kind == null ? null : made(kind, parts);
  }

  private static final Map KINDS = new HashMap();

  static {
    String[] pairs = ("=/2 EqualTo <=>/2 EqualNullSafe </2 LessThan <=/2 LessThanOrEqual >/2 GreaterThan "
        + ">=/2 GreaterThanOrEqual AND/2 And OR/2 Or NOT/1 Not IS_NULL/1 IsNull IS_NOT_NULL/1 IsNotNull "
        + "+/2 Add -/2 Subtract */2 Multiply //2 Divide %/2 Remainder -/1 UnaryMinus ABS/1 Abs UPPER/1 Upper "
        + "LOWER/1 Lower STARTS_WITH/2 StartsWith ENDS_WITH/2 EndsWith CONTAINS/2 Contains").split(" ");
    for (int i = 0; i < pairs.length; i += 2) KINDS.put(pairs[i], pairs[i + 1]);
  }

  private static Expression made(String name, Object[] parts) throws Exception {
    Class[] types = new Class[parts.length];
    Arrays.fill(types, Expression.class);
    Class kind = Class.forName("org.apache.spark.sql.catalyst.expressions." + name);
    return (Expression) kind.getConstructor(types).newInstance(parts);
  }

  private static scala.collection.immutable.List list(Object[] items, int first) {
    scala.collection.immutable.List list = scala.collection.immutable.List$.MODULE$.empty();
    for (int i = items.length - 1; i >= first; i--) list = list.$colon$colon(items[i]);
    return list;
  }

  private static Class[] classes(String names) throws Exception {
    String[] split = names.split(" ");
    Class[] found = new Class[split.length];
    for (int i = 0; i < split.length; i++) {
      found[i] = Class.forName(split[i], true, LakedexBridge.class.getClassLoader());
    }
    return found;
  }

  public static final class Handler implements InvocationHandler {
    private final InvocationHandler python;
    private final Set answered;
    private final Function thrown;

    Handler(InvocationHandler python, Set answered, Function thrown) {
      this.python = python;
      this.answered = answered;
      this.thrown = thrown;
    }

    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
      if (method.isDefault() && !answers(method)) {
        Class type = method.getDeclaringClass();
        return MethodHandles.privateLookupIn(type, MethodHandles.lookup())
            .unreflectSpecial(method, type)
            .bindTo(proxy)
            .invokeWithArguments(arguments == null ? new Object[0] : arguments);
      }
      try {
        return python.invoke(proxy, method, arguments);
      } catch (Throwable failure) {
        throw (Throwable) thrown.apply(failure);
      }
    }

    private boolean answers(Method method) {
      String name = method.getName();
      return answered.contains(name + "/" + method.getParameterTypes().length) || answered.contains(name + "/*");
    }
  }

  public static final class LongestFirst implements Comparator {
    public int compare(Object one, Object other) {
      return Long.compare(((PartitionedFile) other).length(), ((PartitionedFile) one).length());
    }
  }

  public static final class Share implements Statistics {
    private final Statistics whole;
    private final double share;

    Share(Statistics whole, double share) {
      this.whole = whole;
      this.share = share;
    }

    public OptionalLong sizeInBytes() {
      OptionalLong size = whole.sizeInBytes();
      return size.isPresent() ? OptionalLong.of((long) (size.getAsLong() * share)) : size;
    }

    public OptionalLong numRows() { return OptionalLong.empty(); }
  }

  // Rows of another plan reach a scan through a class, not an interface.
  public static final class Rows extends BaseRelation implements TableScan {
    private final SQLContext context;
    private final StructType schema;
    private final RDD rows;
    private final String description;

    Rows(SQLContext context, StructType schema, RDD rows, String description) {
      this.context = context;
      this.schema = schema;
      this.rows = rows;
      this.description = description;
    }

    public SQLContext sqlContext() { return context; }
    public StructType schema() { return schema; }
    public boolean needConversion() { return false; }
    public RDD buildScan() { return rows; }
    public String toString() { return description; }
  }
}
