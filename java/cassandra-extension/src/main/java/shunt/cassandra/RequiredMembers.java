package shunt.cassandra;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.invoke.MethodType;
import java.lang.reflect.Executable;
import java.lang.reflect.Member;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.FileSystem;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;

/**
 * Finds what the extension's classes refer to and this Cassandra does not have. The Java virtual machine looks a member up when
 * it is used for the first time, which may be days after the start and in the middle of a frame; here all of them are looked
 * up at once. What is looked up is read out of the compiled classes, so no list can fall behind them.
 *
 * <p>It runs no code of any class that it looks at: none is initialised.
 */
public final class RequiredMembers
{
    /** Where the classes are found that those of the extension refer to. */
    private final ClassLoader loader;
    private final Set<String> missing = new TreeSet<>();

    private RequiredMembers(ClassLoader loader)
    {
        this.loader = loader;
    }

    /**
     * The members and classes that are missing, or that the extension may not reach, for the classes of these packages; each in
     * words for the log, sorted.
     *
     * @param packages of the extension, with dots
     * @throws IOException when the extension's own classes cannot be read
     */
    public static List<String> missing(String... packages) throws IOException
    {
        RequiredMembers members = new RequiredMembers(RequiredMembers.class.getClassLoader());
        for (String name : packages)
        {
            for (byte[] compiled : ownClasses(name.replace('.', '/')))
                members.check(ConstantPool.read(compiled));
        }
        return List.copyOf(members.missing);
    }

    /** For one compiled class. */
    static List<String> missing(byte[] compiled, ClassLoader loader) throws IOException
    {
        RequiredMembers members = new RequiredMembers(loader);
        members.check(ConstantPool.read(compiled));
        return List.copyOf(members.missing);
    }

    /** The compiled classes of a package, out of the jar (or the directory) that this class is from. */
    private static List<byte[]> ownClasses(String directory) throws IOException
    {
        try
        {
            URI from = RequiredMembers.class.getProtectionDomain().getCodeSource().getLocation().toURI();
            if (Files.isDirectory(Path.of(from)))
                return read(Path.of(from).resolve(directory));
            try (FileSystem jar = FileSystems.newFileSystem(Path.of(from)))
            {
                return read(jar.getPath(directory));
            }
        }
        catch (URISyntaxException e)
        {
            throw new IOException(e);
        }
    }

    private static List<byte[]> read(Path directory) throws IOException
    {
        List<byte[]> classes = new ArrayList<>();
        try (Stream<Path> files = Files.list(directory))
        {
            for (Path file : files.filter(path -> path.toString().endsWith(".class") && !path.endsWith("package-info.class")).toList())
                classes.add(Files.readAllBytes(file));
        }
        return classes;
    }

    private void check(ConstantPool pool)
    {
        pool.classes.forEach(this::find);
        for (ConstantPool.Reference reference : pool.references)
            check(reference, pool.name);
        checkItself(pool.name);
    }

    private Class<?> find(String internalName)
    {
        String name = internalName.replace('/', '.');
        try
        {
            return Class.forName(name, false, loader);
        }
        catch (ClassNotFoundException | LinkageError e)
        {
            missing.add("class " + name);
            return null;
        }
    }

    private void check(ConstantPool.Reference reference, String from)
    {
        // What is Java's own is there; some of its methods have no fixed signature.
        if (reference.owner.startsWith("java/") || reference.owner.startsWith("["))
            return;
        Class<?> owner = find(reference.owner);
        if (owner == null)
            return;
        String what = owner.getName() + '.' + reference.name + (reference.isMethod ? parameters(reference.descriptor) : "");
        try
        {
            Member member = member(owner, reference);
            if (member == null)
                missing.add(what);
            else if (!isReachable(member, from))
                missing.add(what + " (which may not be called from here)");
        }
        catch (LinkageError e)
        {
            missing.add(what + " (" + e + ")");
        }
    }

    private String parameters(String descriptor)
    {
        List<String> names = new ArrayList<>();
        try
        {
            MethodType.fromMethodDescriptorString(descriptor, loader).parameterList().forEach(type -> names.add(type.getSimpleName()));
        }
        catch (TypeNotPresentException e)
        {
            return descriptor;
        }
        return '(' + String.join(", ", names) + ')';
    }

    /** The member, in the class or in what it inherits from; null when there is none. */
    private static Member member(Class<?> owner, ConstantPool.Reference reference)
    {
        for (Class<?> type : lineage(owner))
        {
            Stream<? extends Member> declared =
                !reference.isMethod ? Arrays.stream(type.getDeclaredFields())
                : reference.name.equals("<init>") ? Arrays.stream(type.getDeclaredConstructors())
                : Arrays.stream(type.getDeclaredMethods());
            Member found = declared.filter(member -> reference.isMethod && member.getName().equals(type.getName())
                                                     || member.getName().equals(reference.name))
                                   .filter(member -> descriptor(member).equals(reference.descriptor)).findFirst().orElse(null);
            if (found != null)
                return found;
            if (reference.name.equals("<init>"))
                return null;
        }
        return null;
    }

    /** The class, its superclasses, and all interfaces of those. */
    private static Set<Class<?>> lineage(Class<?> of)
    {
        Set<Class<?>> types = new LinkedHashSet<>();
        for (Class<?> type = of; type != null; type = type.getSuperclass())
            types.add(type);
        for (Class<?> type : List.copyOf(types))
            addInterfaces(type, types);
        types.add(Object.class); // what may be called on an interface, too
        return types;
    }

    private static void addInterfaces(Class<?> of, Set<Class<?>> types)
    {
        for (Class<?> type : of.getInterfaces())
        {
            if (types.add(type))
                addInterfaces(type, types);
        }
    }

    private static String descriptor(Member member)
    {
        if (member instanceof java.lang.reflect.Field field)
            return field.getType().descriptorString();
        Class<?> returns = member instanceof Method method ? method.getReturnType() : void.class;
        return MethodType.methodType(returns, ((Executable) member).getParameterTypes()).descriptorString();
    }

    private static boolean isReachable(Member member, String from)
    {
        Class<?> owner = member.getDeclaringClass();
        int modifiers = member.getModifiers();
        if (Modifier.isPublic(modifiers) || Modifier.isProtected(modifiers))
            return true;
        if (Modifier.isPrivate(modifiers))
            return owner.getNestHost().getName().equals(nestHost(from));
        return owner.getPackageName().equals(from.substring(0, from.lastIndexOf('/')).replace('/', '.'));
    }

    private static String nestHost(String internalName)
    {
        int nested = internalName.indexOf('$');
        return (nested < 0 ? internalName : internalName.substring(0, nested)).replace('/', '.');
    }

    /** That the class can be linked, and that nothing which it has to implement is without an implementation. */
    private void checkItself(String internalName)
    {
        try
        {
            Class<?> own = Class.forName(internalName.replace('/', '.'), false, loader);
            own.getDeclaredMethods(); // verifies the class
            if (Modifier.isAbstract(own.getModifiers()))
                return;
            for (Class<?> type : lineage(own))
            {
                for (Method method : type.getDeclaredMethods())
                {
                    if (Modifier.isAbstract(method.getModifiers()) && !isImplemented(own, method))
                        missing.add(own.getName() + " does not implement " + type.getName() + '.' + method.getName()
                                    + parameters(descriptor(method)));
                }
            }
        }
        catch (ClassNotFoundException | LinkageError e)
        {
            missing.add("class " + internalName.replace('/', '.') + " (" + e + ")");
        }
    }

    private static boolean isImplemented(Class<?> own, Method method)
    {
        return lineage(own).stream().flatMap(type -> Arrays.stream(type.getDeclaredMethods()))
                           .anyMatch(other -> !Modifier.isAbstract(other.getModifiers())
                                              && other.getName().equals(method.getName())
                                              && Arrays.equals(other.getParameterTypes(), method.getParameterTypes()));
    }

    /** What a compiled class refers to (Java Virtual Machine Specification, 4.4). */
    private static final class ConstantPool
    {
        private record Reference(String owner, String name, String descriptor, boolean isMethod)
        {
        }

        private final List<Reference> references = new ArrayList<>();
        private final Set<String> classes = new TreeSet<>();
        /** Of the class itself, with slashes. */
        private String name;

        static ConstantPool read(byte[] compiled) throws IOException
        {
            try (InputStream bytes = new java.io.ByteArrayInputStream(compiled);
                 DataInputStream in = new DataInputStream(bytes))
            {
                in.skipNBytes(8);
                int count = in.readUnsignedShort();
                String[] texts = new String[count];
                // Kind of each constant, and the one or two others that it names.
                int[][] constants = new int[count][];
                for (int i = 1; i < count; i++)
                {
                    constants[i] = constant(in, i, texts);
                    if (constants[i][0] == 5 || constants[i][0] == 6)
                        constants[++i] = new int[3]; // a long or a double takes two places
                }
                in.readUnsignedShort();
                return of(constants, texts, in.readUnsignedShort());
            }
        }

        private static int[] constant(DataInputStream in, int at, String[] texts) throws IOException
        {
            int kind = in.readUnsignedByte();
            switch (kind)
            {
                case 1 -> texts[at] = in.readUTF();
                case 3, 4 -> in.readInt();
                case 5, 6 -> in.readLong();
                case 7, 8, 16, 19, 20 ->
                {
                    return new int[]{kind, in.readUnsignedShort(), 0};
                }
                case 9, 10, 11, 12, 17, 18 ->
                {
                    return new int[]{kind, in.readUnsignedShort(), in.readUnsignedShort()};
                }
                case 15 -> in.skipNBytes(3);
                default -> throw new IOException("a class file with a constant of kind " + kind);
            }
            return new int[]{kind, 0, 0};
        }

        private static ConstantPool of(int[][] constants, String[] texts, int itself)
        {
            ConstantPool pool = new ConstantPool();
            pool.name = texts[constants[itself][1]];
            for (int i = 1; i < constants.length; i++)
            {
                int[] constant = constants[i];
                if (constant[0] == 7 && !texts[constant[1]].startsWith("["))
                    pool.classes.add(texts[constant[1]]);
                if (constant[0] < 9 || constant[0] > 11)
                    continue;
                int[] what = constants[constant[2]];
                pool.references.add(new Reference(texts[constants[constant[1]][1]], texts[what[1]], texts[what[2]], constant[0] != 9));
            }
            return pool;
        }
    }
}
